"""Models of graphs on disk as files: networks as safetensors, single edges as .npy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.formats.npy_stream import open_array, open_output
from gsebo.errors import InvalidInput, escaped
from gsebo.files import check_writable, read_tensors, write_tensors
from gsebo.graph.mapped import release
from gsebo.methods.base import GraphClassifier
from gsebo.methods.files.facts import (
    FORMAT,
    OWN,
    TENSORS,
    WHAT,
    FolderModelFacts,
    check_files,
    common_facts,
    dtype_name,
    write_facts,
)
from gsebo.methods.files.parts import (
    Parts,
    scorer_facts,
    stored_network,
    stored_scorer,
    under,
)
from gsebo.model.extension import FIRST, GUESS, SCORER
from gsebo.model.large import LargeModel
from gsebo.model.layerwise import require_layers

_BACKBONE = "backbone:"
_PIECE = 2**22


def save_large_model(
    estimator: GraphClassifier, folder: Path, dataset: str | None
) -> None:
    """Write a model that was fitted on a graph folder."""
    check_writable(folder)
    model: LargeModel = estimator.large_model_
    networks = {_BACKBONE: model.backbone, GUESS: model.guess, FIRST: model.first}
    tensors: dict[str, Tensor] = {}
    for prefix, network in networks.items():
        if network is not None:
            tensors |= under(prefix, network.state_dict())
    if model.scorer is not None:
        named = model.scorer.state_dict().items()
        tensors |= under(SCORER, {key: each for key, each in named if key != "own"})
    files = [TENSORS]
    if model.own is not None:
        files.append(OWN)
        _write_own(model.own, folder / OWN)
    else:
        # An earlier model may have had one.
        (folder / OWN).unlink(missing_ok=True)
    write_tensors(folder / TENSORS, tensors, {"format": FORMAT})
    facts = FolderModelFacts(
        **common_facts(estimator, dataset, folder, *files),
        dtype=dtype_name(next(model.backbone.parameters()).dtype),
        num_features=model.num_features,
        graph=model.graph,
        own=None if model.own is None else model.own.shape,
        scorer=scorer_facts(
            model.scorer,
            guess=model.guess is not None,
            first=model.first is not None,
        ),
    )
    write_facts(folder, facts)


def _write_own(own: NDArray[Any], path: Path) -> None:
    with open_output(path, own.shape, own.dtype) as out:
        for begin in range(0, out.shape[-1], _PIECE):
            piece = slice(begin, begin + _PIECE)
            out[..., piece] = own[..., piece]
            release(out)
            release(own)


def restore_large_model(
    estimator: GraphClassifier, facts: FolderModelFacts, folder: Path
) -> None:
    """Read what :func:`save_large_model` wrote into an estimator.

    Args:
        estimator: As the description says.
        facts: The description.
        folder: Where the model lies.
    """
    check_files(facts, folder, TENSORS, *([OWN] if facts.own is not None else []))
    tensors, _ = read_tensors(folder / TENSORS, WHAT)
    parts = Parts(tensors, f"the model in {folder}")
    choices, where = estimator.network(), parts.where
    backbone = stored_network(
        choices, facts, parts.take_all(_BACKBONE), where, require_layers
    )
    scorer = guess = first = None
    lead: tuple[int, ...] = ()
    if facts.scorer is not None:
        scorer, guess = stored_scorer(parts, facts, estimator, backbone)
        lead = tuple(scorer.output.shape[:-2])
        if facts.scorer.first:
            first = stored_network(choices, facts, parts.take_all(FIRST), where)
    elif facts.own is not None and len(facts.own) == 2:
        lead = (backbone.num_propagations,)
    parts.require_nothing_else()
    own = None
    if facts.own is not None:
        own = _mapped(folder / OWN, facts, lead)
    estimator.large_model_ = LargeModel(
        backbone=backbone,
        own=own,
        graph=facts.graph,
        num_features=facts.num_features,
        num_classes=facts.num_classes,
        scorer=scorer,
        guess=guess,
        first=first,
    )
    estimator.seed_ = facts.seed
    estimator.num_classes_ = facts.num_classes
    estimator.best_step_ = facts.best_step
    estimator.history_ = facts.history
    estimator.replicas_ = [estimator]


def _mapped(path: Path, facts: FolderModelFacts, lead: tuple[int, ...]) -> NDArray[Any]:
    """What single entries have, once all of it is known to be numbers."""
    assert facts.own is not None
    expected = *lead, facts.own[-1] if facts.own else 0
    if facts.own != expected:
        raise InvalidInput(
            f"{escaped(str(path))} is said to hold {list(facts.own)}; expected "
            f"{list(expected)}, as the rest of the model says."
        )
    found = open_array(path, np.dtype(facts.dtype), expected)
    for begin in range(0, expected[-1], _PIECE):
        if not np.isfinite(found[..., begin : begin + _PIECE]).all():
            raise InvalidInput(
                f"{escaped(str(path))} is not all finite; expected numbers."
            )
        release(found)
    return found
