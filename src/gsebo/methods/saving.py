"""Fitted models as files: safetensors for numbers, JSON for the rest, no pickle.

``model.json`` names every other file with its checksum, holds a checksum of itself, and
says of every part of the model what it consists of. Nothing is read, built or allocated
before all that has been checked.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs, to_builtins
from numpy.typing import NDArray
from torch import nn

from gsebo.data.formats.npy_stream import open_array, open_output
from gsebo.errors import InputWarning, InvalidInput, escaped
from gsebo.files import (
    Form,
    Name,
    Seed,
    Sha256,
    Size,
    Text,
    check_tensors,
    check_writable,
    checksum,
    plain_as,
    read_sealed,
    read_tensors,
    sealed_json,
    write_atomically,
    write_tensors,
)
from gsebo.graph import CanonicalGraph, Topology
from gsebo.graph.graph import Graph, as_graph
from gsebo.graph.mapped import release
from gsebo.memory import require_memory
from gsebo.methods.amortised import AmortisedClassifier
from gsebo.methods.base import GraphClassifier
from gsebo.methods.fitting import Choice, NetworkChoices
from gsebo.methods.parameters import code_in, parameter_from, plain_parameters
from gsebo.methods.registry import METHODS
from gsebo.model.fitted import FittedModel
from gsebo.model.layerwise import require_layers
from gsebo.model.scorer import Scorer
from gsebo.model.state import (
    WEIGHT,
    FittedFacts,
    GraphFacts,
    Parts,
    forms_of,
    strength_form,
)
from gsebo.names import lookup
from gsebo.nn import Backbone
from gsebo.training import StepRecord
from gsebo.version import __version__

FORMAT = 4
_FACTS, _TENSORS, _OWN = "model.json", "model.safetensors", "own.npy"
_WHAT = "a model written by gsebo"
_PIECE = 2**22
# What building a network from a wrong description may raise.
_MISFITS = (LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class ModelFacts(FittedFacts, frozen=True, kw_only=True):
    """What the description of a saved model says."""

    format: int
    method: Name
    parameters: dict[Name, Any]
    dataset: Text | None  # Name or path of the graph, if it is remembered.
    seed: Seed
    best_step: Size
    history: list[StepRecord]
    choice: Choice | None  # What an automatic fit decided.
    versions: dict[Name, Name]
    files: dict[Name, Sha256]


def save_model(
    estimator: GraphClassifier, folder: Path, dataset: str | None, *, overwrite: bool
) -> None:
    """Write a fitted model; the description comes last, and makes one of the files."""
    if not overwrite and os.path.lexists(folder / _FACTS):
        raise InvalidInput(
            f"{folder} holds a model already; expected another folder, or "
            "overwrite=True to replace it."
        )
    check_writable(folder)
    model, kind = estimator.model_, type(estimator)
    method = next(
        (name for name, info in METHODS.items() if info.estimator is kind), ""
    )
    if not method:
        raise InvalidInput(
            f"{kind.__name__} is not registered; expected one of {list(METHODS)}."
        )
    facts, tensors = model.to_state()
    files = [_TENSORS]
    # A name of bytes that are no text cannot be written.
    is_text = (dataset or "").encode(errors="replace").decode() == (dataset or "")
    if model.is_held:
        tensors["probability"] = estimator.probability_
        # For `gsebo inspect` only: a fit never reads the labels of test nodes.
        tensors["labels"] = as_graph(estimator.graph_).y.to(torch.int64)
    if model.own is not None:
        files.append(_OWN)
        _write_own(model.own, folder / _OWN)
    write_tensors(folder / _TENSORS, tensors, {"format": FORMAT})
    said = ModelFacts(
        **structs.asdict(facts),
        format=FORMAT,
        method=method,
        parameters=plain_parameters(estimator.get_params(deep=False)),
        dataset=dataset if is_text else None,
        seed=estimator.seed_,
        best_step=estimator.best_step_,
        history=estimator.history_,
        choice=getattr(estimator, "decision_", None),
        versions={
            "gsebo": __version__,
            "torch": str(torch.__version__),
            "torch_geometric": version("torch_geometric"),
        },
        files={name: checksum(folder / name, _WHAT) for name in files},
    )
    write_atomically(folder / _FACTS, sealed_json(to_builtins(said)))
    if model.own is None:
        # An earlier model may have had one.
        (folder / _OWN).unlink(missing_ok=True)


def _write_own(own: NDArray[Any], path: Path) -> None:
    with open_output(path, own.shape, own.dtype) as out:
        for begin in range(0, out.shape[-1], _PIECE):
            piece = slice(begin, begin + _PIECE)
            out[..., piece] = own[..., piece]
            release(out)
            release(own)


def read_facts(folder: Path) -> ModelFacts:
    """Read and check the description of a model, nothing else."""
    content = read_sealed(folder / _FACTS, _WHAT, of_format=FORMAT)
    return plain_as(ModelFacts, content, f"{folder / _FACTS}", _WHAT)


def load_model(
    folder: str | Path, *, backbone: type | nn.Module | None = None
) -> GraphClassifier:
    """Read a model that was written by ``save``.

    Everything is checked before it is used: flip a byte anywhere, and the model is
    refused.

    Args:
        folder: Where the model lies.
        backbone: The class or instance that the model was fitted with, if that was not
            a name: code is never loaded from a model file. A structure, a
            hypergradient or a sampler of your own that was code is replaced by the
            default, with a warning: only another fit would need it.
    """
    folder = Path(folder)
    facts = read_facts(folder)
    try:
        estimator = _estimator_from(facts.method, facts.parameters, backbone)
        _restore(estimator, facts, folder, backbone)
    except InvalidInput:
        raise
    except _MISFITS as error:
        reason = escaped(" ".join(str(error).split()), longest=300)
        raise InvalidInput(
            f"the model in {escaped(str(folder))} does not fit its own description "
            f"({reason}); expected the network that it was saved with."
        ) from error
    return estimator


def _estimator_from(
    method: str, parameters: dict[str, Any], backbone: type | nn.Module | None
) -> GraphClassifier:
    """The estimator of a description, with parameters that a fit would accept."""
    info = lookup("method", method, METHODS)
    if backbone is not None:
        parameters = parameters | {"backbone": backbone}
        if isinstance(backbone, nn.Module):
            parameters["backbone_options"] = None
    code = {name: said for name, each in parameters.items() if (said := code_in(each))}
    for name in code.keys() & {"backbone", "backbone_options"}:
        raise InvalidInput(
            f"the model was fitted with {name}={code[name]}, which is code and not in "
            "the file; expected load_model(folder, backbone=...) with the network."
        )
    if code:
        warnings.warn(
            f"the model was fitted with {' and '.join(code)} given as code, which is "
            "not in the file: the default takes its place if it is fitted again.",
            InputWarning,
            stacklevel=4,
        )
    known = {
        name: parameter_from(value)
        for name, value in parameters.items()
        if name not in code
    }
    try:
        estimator = info.estimator(**known)
    except TypeError as error:
        raise InvalidInput(
            f"the model has parameters that {method} does not take "
            f"({escaped(str(error), longest=200)})."
        ) from error
    estimator.check_parameters()
    return estimator


def _restore(
    estimator: GraphClassifier,
    facts: ModelFacts,
    folder: Path,
    backbone: type | nn.Module | None,
) -> None:
    _check_files(facts, folder)
    _check_class_names(facts, folder)
    tensors, _ = read_tensors(folder / _TENSORS, _WHAT)
    parts = Parts(tensors, f"the model in {folder}")
    # Part by part: what one says of the next is known by then to be so.
    graph: Any = facts.graph
    ready, shown, probability = require_layers, None, torch.empty(0)
    if isinstance(facts.graph, GraphFacts):
        graph, size = facts.graph.take(parts), facts.graph.num_nodes
        shape = size, facts.num_classes
        form, labels = Form(facts.torch_dtype, shape, low=0), Form(torch.int64, (size,))
        found = parts.take({"probability": form, "labels": labels})
        probability = found["probability"]
        shown = Graph(edge_index=graph[0].user_edge_index(), y=found["labels"])
        shown.num_nodes = size
        if graph[1].node_id is not None:
            shown.node_id = graph[1].node_id
        if facts.classes is not None:
            shown.meta = {"classes": list(facts.classes)}
        _show_types(shown, graph[0])
        ready = partial(_get_ready, graph[0], facts)
    choices = _network_of(estimator, facts)
    network = _stored_network(choices, facts, parts, WEIGHT, ready)
    scorer = _scorer_from(parts, facts, estimator, network, backbone)
    own = _mapped(folder / _OWN, facts, network, scorer)
    model = FittedModel.from_state(facts, parts, graph, network, scorer, own)
    parts.require_nothing_else()
    estimator.model_, estimator.seed_ = model, facts.seed
    estimator.history_, estimator.best_step_ = facts.history, facts.best_step
    estimator.tell(facts.choice, probability, shown)


def _show_types(shown: Graph, graph: CanonicalGraph) -> None:
    """Say of nodes and edges, in the order of the user, what they are, if it is known.

    A self-loop is of no relation there: it is shown as one that joins its type.
    """
    types = graph.types
    if types is None:
        return
    own = [each[0] if each[0] == each[2] else None for each in types.edge_types]
    of_type = [own.index(name) if name in own else 0 for name in types.node_types]
    loops = torch.tensor(of_type)[types.node_type]
    shown.node_type = types.node_type
    shown.edge_type = graph.to_user_order(types.edge_type, loops)
    said: dict[str, Any] = {
        "node_types": list(types.node_types),
        "edge_types": [list(each) for each in types.edge_types],
    }
    if types.classified is not None:
        said["target"] = types.node_types[types.classified]
    shown.meta = {**(shown.meta or {}), **said}


def _check_files(facts: ModelFacts, folder: Path) -> None:
    """Raise unless the files of a model are those that its description means."""
    names = [_TENSORS, *([_OWN] if facts.own is not None else [])]
    place, named = escaped(str(folder / _FACTS)), ", ".join(facts.files) or "none"
    if facts.files.keys() != {*names}:
        raise InvalidInput(
            f"{place} names the files {escaped(named, longest=80)}; expected "
            f"{' and '.join(names)}."
        )
    for name, expected in facts.files.items():
        if checksum(folder / name, _WHAT) != expected:
            raise InvalidInput(
                f"{escaped(str(folder / name))} does not belong to {place}, or is "
                "damaged; expected the files of one save."
            )
    on_disk = not isinstance(facts.graph, GraphFacts)
    foreign: Any = facts.own
    if on_disk:
        layers = facts.own is None and facts.num_layers
        foreign = facts.members or facts.preparation or layers or not facts.learned
    if foreign:
        raise InvalidInput(
            f"{place} describes parts that no model of a graph "
            f"{'folder' if on_disk else 'in memory'} has; expected one as it was saved."
        )


def _check_class_names(facts: ModelFacts, folder: Path) -> None:
    names = facts.classes
    if names is None:
        return
    if len(names) < facts.num_classes or len(set(names)) < len(names):
        raise InvalidInput(
            f"{escaped(str(folder / _FACTS))} names {len(names)} classes; expected "
            f"another name for each of {facts.num_classes} at least."
        )


# Networks that an automatic fit tries beside the one that it was given, with options.
_OF_AUTO: dict[str, dict[str, Any] | None] = {
    "mlp": None,
    "grand": {"feature_gates": True},
}


def _network_of(estimator: GraphClassifier, facts: ModelFacts) -> NetworkChoices:
    """Which network the model holds: an automatic fit may have chosen another."""
    if estimator.chooses != (facts.choice is not None):
        raise InvalidInput(
            f"the model file says that {facts.method} has made "
            f"{'a' if facts.choice else 'no'} choice; expected one of auto alone."
        )
    network = estimator.network()
    if facts.choice is not None:
        said = facts.choice.parameters
        own = said.get("backbone"), said.get("backbone_options")
        for name, options in _OF_AUTO.items():
            if own == (name, options):
                return replace(network, backbone=name, options=options)
    return network


def _get_ready(graph: CanonicalGraph, facts: ModelFacts, network: Backbone) -> None:
    """Let a network of PyG make the weights that wait for their input."""
    if type(network).prepare is not Backbone.prepare:
        topology = Topology.of(graph, self_loops=network.self_loops, device="cpu")
        shape, dtype = (graph.num_nodes, facts.num_features), facts.torch_dtype
        require_memory(
            shape[0] * shape[1] * dtype.itemsize,
            what=f"a network of {shape[1]} features on {shape[0]} nodes",
            instead="a model as it was saved",
        )
        blank = torch.zeros(shape, dtype=dtype)
        network.prepare(blank, topology.pattern, facts.num_classes)


def _stored_network(
    choices: NetworkChoices,
    facts: ModelFacts,
    parts: Parts,
    prefix: str,
    get_ready: Callable[[Backbone], None] = lambda network: None,
) -> Backbone:
    """Build a network, get it ready, and load its ``state_dict`` from a file."""
    sizes, dtype = (facts.num_features, facts.num_classes), facts.torch_dtype
    tensors, where = parts.take_all(prefix), parts.where
    if isinstance(choices.backbone, str):
        # Refuse what the weights contradict, before anything huge is built.
        layers, width = choices.num_layers, choices.hidden_channels
        widest = max(
            (side for each in tensors.values() for side in each.shape), default=0
        )
        if layers > len(tensors) or (layers > 1 and width > widest):
            raise InvalidInput(
                f"the model file describes {layers} layers of width {width}; expected "
                f"at most the {len(tensors)} weights it holds, of at most {widest} "
                "columns."
            )
        # On paper first: what a description claims takes no memory there.
        with torch.device("meta"):
            claimed = choices.build(*sizes).to(dtype)
        forms = forms_of(claimed.state_dict())
        present = {name: each for name, each in tensors.items() if name in forms}
        check_tensors(present, forms, where)
    with torch.random.fork_rng(devices=[]):
        network = choices.build(*sizes).to(dtype)
        get_ready(network)
    check_tensors(tensors, forms_of(network.state_dict()), where)
    network.load_state_dict(tensors)
    return network


def _scorer_from(
    parts: Parts,
    facts: ModelFacts,
    estimator: GraphClassifier,
    network: Backbone,
    backbone: type | nn.Module | None,
) -> Scorer | None:
    if facts.scorer is None:
        return None
    if facts.choice is not None:
        candidate = facts.choice.chosen.candidate
        estimator = _estimator_from(candidate, facts.choice.parameters, backbone)
    if not isinstance(estimator, AmortisedClassifier):
        raise InvalidInput(
            f"{escaped(parts.where)} is said to score new edges with "
            f"{type(estimator).__name__}; expected Amortised or Inoculated, which "
            "alone do."
        )
    if not estimator.allows_floor(floor := facts.scorer.floor or 0.0):
        raise InvalidInput(
            f"{escaped(parts.where)} is said to have floor={floor!r}; expected what a "
            f"fit of {type(estimator).__name__} with its parameters may have."
        )
    features_only = partial(_stored_network, estimator.features_network(), facts, parts)
    return Scorer.from_state(
        facts, parts, network, estimator.make_structure(), features_only
    )


def _mapped(
    path: Path, facts: ModelFacts, network: Backbone, scorer: Scorer | None
) -> NDArray[Any] | None:
    """What single entries have, once all of it is known to be numbers."""
    form = strength_form(facts.num_layers, facts.own or 0, facts.torch_dtype, network)
    if facts.own is None:
        return None
    lead = form.shape[:-1] if scorer is None else scorer.structure.output.shape[:-2]
    if form.shape != (*lead, facts.own):
        raise InvalidInput(
            f"{escaped(str(path))} is said to hold {list(form.shape)}; expected "
            f"{[*lead, facts.own]}, as the rest of the model says."
        )
    found = open_array(path, np.dtype(facts.dtype), form.shape)
    for begin in range(0, facts.own, _PIECE):
        if not np.isfinite(found[..., begin : begin + _PIECE]).all():
            raise InvalidInput(
                f"{escaped(str(path))} is not all finite; expected numbers."
            )
        release(found)
    return found
