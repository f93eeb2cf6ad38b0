"""Models of graphs on disk as files: networks as safetensors, single edges as .npy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gsebo.backbone import Backbone
from gsebo.data.column_files import open_output
from gsebo.data.mapped import release
from gsebo.errors import InvalidInput
from gsebo.files import check_writable, read_tensors, write_atomically, write_tensors
from gsebo.methods.large_model import LargeModel
from gsebo.methods.plain import plain_parameters
from gsebo.training import StepRecord
from gsebo.version import __version__

if TYPE_CHECKING:
    from gsebo.methods.base import GraphClassifier

FORMAT = "large-1"
_FACTS, _TENSORS, _OWN = "model.json", "model.safetensors", "own.npy"
_NETWORKS = ("backbone", "guess", "first")
_SCORER = "scorer:"
_PIECE = 2**22


def save_large_model(
    estimator: GraphClassifier, folder: Path, dataset: str | None
) -> None:
    """Write a model that was fitted on a graph folder."""
    from gsebo.methods.persistence import method_name

    check_writable(folder)
    model: LargeModel = estimator.large_model_
    tensors: dict[str, Tensor] = {}
    for name in _NETWORKS:
        network: Backbone | None = getattr(model, name)
        if network is not None:
            named = network.state_dict().items()
            tensors |= {f"{name}:{key}": tensor for key, tensor in named}
    if model.scorer is not None:
        named = model.scorer.state_dict().items()
        tensors |= {_SCORER + key: tensor for key, tensor in named if key != "own"}
    write_tensors(folder / _TENSORS, tensors, {"format": FORMAT})
    if model.own is not None:
        with open_output(folder / _OWN, model.own.shape, model.own.dtype) as out:
            for begin in range(0, out.shape[-1], _PIECE):
                piece = slice(begin, begin + _PIECE)
                out[..., piece] = model.own[..., piece]
                release(out)
                release(model.own)
    facts = {
        "format": FORMAT,
        "method": method_name(estimator),
        "parameters": plain_parameters(estimator.get_params(deep=False)),
        "dataset": dataset,
        "graph": model.graph,
        "seed": estimator.seed_,
        "num_features": model.num_features,
        "num_classes": model.num_classes,
        "own": model.own is not None,
        "best_step": estimator.best_step_,
        "history": [asdict(record) for record in estimator.history_],
        "versions": {"gsebo": __version__, "torch": torch.__version__},
    }
    write_atomically(folder / _FACTS, json.dumps(facts, indent=1).encode())


def restore_large_model(
    estimator: GraphClassifier, facts: dict[str, Any], folder: Path
) -> None:
    """Read what :func:`save_large_model` wrote into an estimator."""
    tensors, _ = read_tensors(folder / _TENSORS, "a model written by gsebo")
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition(":")
        parts.setdefault(part, {})[key] = tensor
    sizes = facts["num_features"], facts["num_classes"]
    dtype = next(iter(parts["backbone"].values())).dtype

    def network(name: str, choices: Any) -> Backbone | None:
        if name not in parts:
            return None
        built: Backbone = choices.build(*sizes).to(dtype)
        built.load_state_dict(parts[name])
        return built

    backbone = network("backbone", estimator.network())
    assert backbone is not None
    scorer = guess = first = None
    if "scorer" in parts:
        scorer = estimator.make_structure()
        scorer.restore(parts["scorer"], backbone.normalise)
        guess = network("guess", estimator.guess_network())
        first = network("first", estimator.network())
    own = None
    if facts["own"]:
        own = _mapped(folder / _OWN)
    estimator.large_model_ = LargeModel(
        backbone=backbone,
        own=own,
        graph=facts["graph"],
        num_features=sizes[0],
        num_classes=sizes[1],
        scorer=scorer,
        guess=guess,
        first=first,
    )
    estimator.seed_ = facts["seed"]
    estimator.num_classes_ = facts["num_classes"]
    estimator.best_step_ = facts["best_step"]
    estimator.history_ = [StepRecord.from_json(each) for each in facts["history"]]
    estimator.replicas_ = [estimator]


def _mapped(path: Path) -> np.ndarray[Any, Any]:
    try:
        found: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path} is missing or damaged ({error}); expected the file of a model "
            "written by gsebo."
        ) from error
    return found
