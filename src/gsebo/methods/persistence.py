"""Fitted models as files: safetensors for numbers, JSON for the rest, no pickle."""

import hashlib
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import __version__ as pyg_version
from torch_geometric.data import Data

from gsebo.backbone import PyGBackbone
from gsebo.data import CanonicalGraph
from gsebo.data.node_match import NodeKeys
from gsebo.errors import InputWarning, InvalidInput
from gsebo.files import (
    check_writable,
    read_json,
    read_tensors,
    write_atomically,
    write_tensors,
)
from gsebo.lookup import lookup
from gsebo.methods.base import GraphClassifier
from gsebo.methods.choice_files import (
    choice_facts,
    network_of,
    preparation_tensors,
    restore_choice,
)
from gsebo.methods.extension_files import extension_from, extension_tensors
from gsebo.methods.fitted import FittedModel
from gsebo.methods.large_files import FORMAT as LARGE
from gsebo.methods.large_files import restore_large_model
from gsebo.methods.member_files import member_tensors, members_from
from gsebo.methods.plain import plain_parameters
from gsebo.methods.prepare import NetworkChoices
from gsebo.methods.registry import METHODS
from gsebo.methods.sampler_files import is_sampler, sampler_from
from gsebo.structure import Topology
from gsebo.training import StepRecord
from gsebo.version import __version__

_FORMAT = 1
_FACTS = "model.json"
_TENSORS = "model.safetensors"
_WEIGHT = "weight:"
_NODE_HASH, _NODE_ID = "node_hash", "node_id"
# What building a network from a wrong description may raise.
_MISFITS = (LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def save_model(model: GraphClassifier, folder: Path, dataset: str | None) -> None:
    """Write a fitted model; the JSON names the hash of the tensors it belongs to."""
    check_writable(folder)
    fitted, graph = model.model_, model.model_.graph
    state = fitted.backbone.state_dict()
    tensors = {_WEIGHT + name: tensor.clone() for name, tensor in state.items()}
    tensors |= {
        "strengths": fitted.strengths,
        "start": fitted.start,
        "edge_index": graph.edge_index,
        "entry_of_edge": graph.entry_of_edge,
        "probability": model.probability_,
        # For `gsebo inspect` only: a fit never reads the labels of test nodes.
        "labels": model.graph_.y,
        **member_tensors(fitted.members),
        **_node_tensors(fitted),
        **preparation_tensors(fitted.preparation),
        **extension_tensors(fitted),
    }
    write_tensors(folder / _TENSORS, tensors, {"format": _FORMAT})
    facts = {
        "format": _FORMAT,
        "method": method_name(model),
        "parameters": plain_parameters(model.get_params(deep=False)),
        "dataset": dataset,
        "seed": model.seed_,
        "num_nodes": graph.num_nodes,
        "num_features": fitted.num_features,
        "num_classes": model.num_classes_,
        "learned": fitted.learned,
        "best_step": model.best_step_,
        **choice_facts(model),
        "history": [asdict(record) for record in model.history_],
        "versions": {
            "gsebo": __version__,
            "torch": torch.__version__,
            "torch_geometric": pyg_version,
        },
        "tensors_sha256": _sha256(folder / _TENSORS),
    }
    text = json.dumps(facts, indent=1)
    write_atomically(folder / _FACTS, text.encode())


def load_model(
    folder: str | Path, *, backbone: type | nn.Module | None = None
) -> GraphClassifier:
    """Read a model that was written by ``save``.

    Args:
        folder: Where the model lies.
        backbone: The class or instance that the model was fitted with, if that was not
            a name: code is never loaded from a model file. A structure, a
            hypergradient or a sampler of your own that was code is replaced by the
            default, with a warning: only another fit would need it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} does not exist; expected a folder with a model.")
    facts = read_json(folder / _FACTS, "a model written by gsebo")
    if facts.get("format") == LARGE:
        return _load_large(facts, folder, backbone)
    _check_facts(facts, folder)
    tensors, _ = read_tensors(folder / _TENSORS, "a model written by gsebo")
    if _sha256(folder / _TENSORS) != facts["tensors_sha256"]:
        raise InvalidInput(
            f"{folder / _TENSORS} does not belong to {folder / _FACTS}, or is damaged; "
            "expected the two files of one save."
        )
    model = _make_estimator(facts, backbone)
    try:
        _restore(model, facts, tensors)
    except _MISFITS as error:
        raise _misfit(folder, error) from error
    return model


def _misfit(folder: Path, error: BaseException) -> InvalidInput:
    reason = " ".join(str(error).split())
    return InvalidInput(
        f"the model in {folder} does not fit its own description ({reason}); "
        "expected the network that it was saved with."
    )


def _check_facts(facts: dict[str, Any], folder: Path) -> None:
    found = facts.get("format")
    if found != _FORMAT:
        raise InvalidInput(
            f"{folder / _FACTS} has format {found!r}; expected format {_FORMAT}, which "
            f"gsebo {__version__} writes."
        )
    wanted = (
        "method",
        "parameters",
        "seed",
        "num_nodes",
        "num_features",
        "num_classes",
        "learned",
        "best_step",
        "history",
        "tensors_sha256",
    )
    missing = [key for key in wanted if key not in facts]
    if missing:
        raise InvalidInput(
            f"{folder / _FACTS} lacks {', '.join(missing)}; expected a whole model."
        )


def _load_large(
    facts: dict[str, Any], folder: Path, backbone: type | nn.Module | None
) -> GraphClassifier:
    try:
        model = _make_estimator(facts, backbone)
        restore_large_model(model, facts, folder)
    except InvalidInput:
        raise
    except _MISFITS as error:
        raise _misfit(folder, error) from error
    return model


def _make_estimator(
    facts: dict[str, Any], backbone: type | nn.Module | None
) -> GraphClassifier:
    info = lookup("method", facts["method"], METHODS)
    parameters = facts["parameters"]
    if not isinstance(parameters, dict):
        raise InvalidInput(f"parameters={parameters!r} stored; expected an object.")
    if backbone is not None:
        parameters = parameters | {"backbone": backbone}
        if isinstance(backbone, nn.Module):
            parameters["backbone_options"] = None
    code = [name for name, value in parameters.items() if _is_code(value)]
    for name in code:
        if name in ("backbone", "backbone_options"):
            raise InvalidInput(
                f"the model was fitted with {name}={parameters[name]['code']}, which "
                "is code and not in the file; expected load_model(folder, "
                "backbone=...) with the network."
            )
    if code:
        warnings.warn(
            f"the model was fitted with {' and '.join(code)} given as code, which is "
            "not in the file: the default takes its place if it is fitted again.",
            InputWarning,
            stacklevel=3,
        )
    known = {name: value for name, value in parameters.items() if name not in code}
    if is_sampler(known.get("sampler")):
        known["sampler"] = sampler_from(known["sampler"])
    try:
        return info.estimator(**known)
    except TypeError as error:
        raise InvalidInput(
            f"the model has parameters that {facts['method']} does not take ({error})."
        ) from error


def _is_code(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"code"}


def _restore(
    model: GraphClassifier, facts: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    graph = CanonicalGraph(
        facts["num_nodes"], tensors["edge_index"], tensors["entry_of_edge"]
    )
    weights = {
        name.removeprefix(_WEIGHT): tensor
        for name, tensor in tensors.items()
        if name.startswith(_WEIGHT)
    }
    choices = network_of(model, facts)
    _check_sizes(choices, weights)
    network = choices.build(facts["num_features"], facts["num_classes"])
    network = network.to(tensors["strengths"].dtype)
    if isinstance(network, PyGBackbone):
        topology = Topology.of(graph, self_loops=network.self_loops, device="cpu")
        blank = tensors["strengths"].new_zeros(graph.num_nodes, facts["num_features"])
        network.prepare(blank, topology.pattern, facts["num_classes"])
    network.load_state_dict(weights)
    model.model_ = FittedModel(
        backbone=network,
        graph=graph,
        strengths=tensors["strengths"],
        start=tensors["start"],
        learned=facts["learned"],
        num_features=facts["num_features"],
        members=members_from(tensors, network, graph.num_nodes),
        # Older models have neither: their nodes are known by position alone.
        nodes=NodeKeys(graph.num_nodes, tensors.get(_NODE_HASH), tensors.get(_NODE_ID)),
        extension=extension_from(model, facts, tensors, network),
    )
    model.seed_ = facts["seed"]
    model.num_classes_ = facts["num_classes"]
    model.best_step_ = facts["best_step"]
    model.history_ = [StepRecord.from_json(record) for record in facts["history"]]
    model.probability_ = tensors["probability"]
    edges = graph.user_edge_index()
    model.restore_graph(Data(edge_index=edges, y=tensors["labels"]))
    restore_choice(model, facts, tensors)


def _node_tensors(fitted: FittedModel) -> dict[str, Tensor]:
    """What the nodes are known by, as far as there is anything."""
    nodes = fitted.nodes or NodeKeys(fitted.graph.num_nodes)
    found = {_NODE_HASH: nodes.row_hash, _NODE_ID: nodes.node_id}
    return {name: keys for name, keys in found.items() if keys is not None}


def _check_sizes(network: NetworkChoices, weights: dict[str, Tensor]) -> None:
    """Refuse what the weights contradict, before anything huge is built."""
    layers, width = network.num_layers, network.hidden_channels
    widest = max((size for each in weights.values() for size in each.shape), default=0)
    named = isinstance(network.backbone, str)
    if named and (layers > len(weights) or (layers > 1 and width > widest)):
        raise InvalidInput(
            f"the model file describes {layers} layers of width {width}; expected at "
            f"most the {len(weights)} weights it holds, of at most {widest} columns."
        )


def method_name(model: GraphClassifier) -> str:
    """Under which name the method of an estimator is registered."""
    for name, info in METHODS.items():
        if info.estimator is type(model):
            return name
    raise InvalidInput(
        f"{type(model).__name__} is not registered; expected one of {list(METHODS)}."
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
