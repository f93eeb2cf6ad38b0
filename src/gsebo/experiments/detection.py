"""Trials that rank edges instead of predicting classes, and how right they are."""

from collections import ChainMap
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gsebo.data import DATASETS
from gsebo.experiments.result import Detection, Result, Signal, Trial
from gsebo.methods import METHODS
from gsebo.methods.registry import MethodInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gsebo.suspects.detector import SuspiciousEdges

DETECTORS: dict[str, MethodInfo] = {
    "suspects": MethodInfo(
        "gsebo.suspects.detector:SuspiciousEdges",
        "edges by how likely each is wrong, learned from planted ones",
        "this project",
        backbones=("gcn",),
    ),
}
"""What ranks edges, by name."""

TRIED: MutableMapping[str, MethodInfo] = ChainMap(METHODS, DETECTORS)
"""Everything that a recipe can name as a method."""

_FIRST = (50, 100, 500)
_SIGNALS = ("cosine", "features_agreement", "agreement", "learned_weight")
_DIGITS = 5


def detect(trial: Trial, device: str, data_dir: Path | None) -> Result:
    """Rank the edges of a trial's graph, and compare with those that are false.

    False are the edges that the graph did not have before it was attacked, or before
    noise was added.
    """
    import numpy as np

    from gsebo.experiments.fit import (
        circumstances,
        peak_memory_bytes,
        timed_fit,
        trial_graph,
    )
    from gsebo.methods.fitting import resolve_device
    from gsebo.suspects.detector import SuspiciousEdges
    from gsebo.suspects.pairs import Pairs, keys_of_ends

    detector = SuspiciousEdges(device=device, random_state=trial.seed)
    detector.set_params(**trial.parameters)
    graph = trial_graph(trial, data_dir)
    before = DATASETS[trial.dataset].before_attack or trial.dataset
    clean = trial_graph(replace(trial, dataset=before, noise=0), data_dir)
    seconds = timed_fit(detector, graph)
    size = graph.num_nodes
    known = keys_of_ends(Pairs.of(clean).ends, size)
    false = ~np.isin(keys_of_ends(detector.ends_.T, size), known)
    parameters = detector.get_params(deep=False)
    for name in ("device", "random_state"):
        del parameters[name]
    return Result(
        trial=trial,
        detection=_outcome(detector, false),
        seconds=round(seconds, 3),
        peak_memory_bytes=peak_memory_bytes(resolve_device(device)),
        together=1,
        all_parameters=parameters,
        device=device,
        **circumstances(),
    )


def _outcome(detector: "SuspiciousEdges", false: "NDArray[np.bool_]") -> Detection:
    from sklearn.metrics import average_precision_score, roc_auc_score

    table = detector.edges_
    signals: dict[str, Signal] = {}
    if false.any() and not false.all():
        # Whatever speaks for an edge is suspicious where it is low.
        ranks = {"score": table["score"]}
        ranks |= {name: -table[name] for name in _SIGNALS if name in table}
        signals = {
            name: {
                "area": round(float(roc_auc_score(false, rank)), _DIGITS),
                "average_precision": round(
                    float(average_precision_score(false, rank)), _DIGITS
                ),
            }
            for name, rank in ranks.items()
        }
    precision = []
    for first in _FIRST:
        if first <= len(table) and detector.calibration_.tells:
            stated, low, high = detector.calibration_.of_first(first)
            figures = {"stated": stated, "low": low, "high": high}
            figures["true"] = float(false[:first].mean())
            rounded = {name: round(each, _DIGITS) for name, each in figures.items()}
            precision.append({"first": first, **rounded})
    return {
        "num_edges": len(table),
        "num_false": int(false.sum()),
        "stated_share": round(detector.calibration_.share, _DIGITS),
        "signals": signals,
        "precision": precision,  # type: ignore[typeddict-item]  # as it is written
    }
