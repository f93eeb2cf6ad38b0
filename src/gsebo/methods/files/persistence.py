"""Fitted models as files: safetensors for numbers, JSON for the rest, no pickle."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from gsebo.data.preparation import Preparation, preparation_called
from gsebo.errors import InvalidInput, escaped
from gsebo.files import Form, check_writable, read_tensors, write_tensors
from gsebo.graph import CanonicalGraph, Propagation, Topology
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import NodeKeys
from gsebo.memory import require_memory
from gsebo.methods.auto.auto import Auto
from gsebo.methods.base import GraphClassifier
from gsebo.methods.files.facts import (
    FORMAT,
    OWN,
    TENSORS,
    WHAT,
    FolderModelFacts,
    GraphModelFacts,
    MemberFacts,
    check_files,
    common_facts,
    dtype_name,
    estimator_from,
    read_facts,
    write_facts,
)
from gsebo.methods.files.large import restore_large_model
from gsebo.methods.files.parts import (
    Forms,
    Parts,
    Tensors,
    part_of,
    scorer_facts,
    stored_network,
    stored_scorer,
    under,
    weight_forms,
)
from gsebo.methods.outcome import Choice, Tried
from gsebo.methods.prepare import NetworkChoices
from gsebo.model.extension import EDGE_WEIGHTS, FIRST, AmortisedExtension
from gsebo.model.fitted import FittedModel, edges_of
from gsebo.nn import Backbone
from gsebo.training import Member

_WEIGHT, _EXTENSION, _PREPARATION = "weight:", "extension:", "preparation:"
_NODE_HASH, _NODE_ID = "node_hash", "node_id"
_EDGES, _STRENGTHS = "edges", "strengths"
# What building a network from a wrong description may raise.
_MISFITS = (LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def save_model(model: GraphClassifier, folder: Path, dataset: str | None) -> None:
    """Write a fitted model; the JSON names the hash of the tensors it belongs to."""
    check_writable(folder)
    fitted, graph = model.model_, model.model_.graph
    nodes = fitted.nodes or NodeKeys(graph.num_nodes)
    keys = {_NODE_HASH: nodes.row_hash, _NODE_ID: nodes.node_id}
    scorer = None
    tensors = {
        "strengths": fitted.strengths,
        "start": fitted.start,
        "edge_index": graph.edge_index,
        "entry_of_edge": graph.entry_of_edge,
        "probability": model.probability_,
        # For `gsebo inspect` only: a fit never reads the labels of test nodes.
        "labels": model.graph_.y.to(torch.int64),
        **under(_WEIGHT, fitted.backbone.state_dict()),
        **_member_tensors(fitted.members),
        **{name: each for name, each in keys.items() if each is not None},
    }
    if isinstance(fitted.extension, AmortisedExtension):
        extension = fitted.extension
        tensors |= under(_EXTENSION, extension.tensors())
        scorer = scorer_facts(
            extension.structure,
            guess=extension.guess is not None,
            first=bool(extension.first),
        )
    preparation = fitted.preparation
    if preparation is not None:
        tensors |= under(_PREPARATION, preparation.tensors())
    write_tensors(folder / TENSORS, tensors, {"format": FORMAT})
    facts = GraphModelFacts(
        **common_facts(model, dataset, folder, TENSORS),
        dtype=dtype_name(fitted.strengths.dtype),
        num_features=fitted.num_features,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_given_edges=graph.entry_of_edge.numel(),
        num_layers=_num_layers(fitted.strengths),
        learned=fitted.learned,
        row_hashes=nodes.row_hash is not None,
        node_ids=nodes.node_id is not None,
        members=[_member_facts(member) for member in fitted.members],
        scorer=scorer,
        preparation=None if preparation is None else preparation.name,
        choice=_choice_of(model),
    )
    write_facts(folder, facts)
    # An earlier model may have had one.
    (folder / OWN).unlink(missing_ok=True)


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
        model = estimator_from(facts.method, facts.parameters, backbone)
        if isinstance(facts, FolderModelFacts):
            restore_large_model(model, facts, folder)
        else:
            _restore(model, facts, folder, backbone)
    except InvalidInput:
        raise
    except _MISFITS as error:
        reason = escaped(" ".join(str(error).split()), longest=300)
        raise InvalidInput(
            f"the model in {escaped(str(folder))} does not fit its own description "
            f"({reason}); expected the network that it was saved with."
        ) from error
    return model


def _restore(
    model: GraphClassifier,
    facts: GraphModelFacts,
    folder: Path,
    backbone: type | nn.Module | None,
) -> None:
    check_files(facts, folder, TENSORS)
    tensors, _ = read_tensors(folder / TENSORS, WHAT)
    parts = Parts(tensors, f"the model in {folder}")
    # Part by part: what one says of the next is known by then to be so.
    on_graph = parts.take(_forms_of_graph(facts))
    graph = _graph_from(facts, on_graph, parts.where)
    network = stored_network(
        _network_of(model, facts),
        facts,
        parts.take_all(_WEIGHT),
        parts.where,
        partial(_get_ready, graph, facts),
    )
    on_entries = parts.take(_forms_of_entries(facts, network))
    members = tuple(
        _member_from(parts, number, facts, network)
        for number in range(len(facts.members))
    )
    extension = _extension_from(parts, facts, model, network, backbone)
    preparation = _preparation_from(parts, facts)
    parts.require_nothing_else()
    model.model_ = FittedModel(
        backbone=network,
        graph=graph,
        strengths=on_entries["strengths"],
        start=on_entries["start"],
        learned=facts.learned,
        num_features=facts.num_features,
        members=members,
        nodes=NodeKeys(
            facts.num_nodes, on_graph.get(_NODE_HASH), on_graph.get(_NODE_ID)
        ),
        extension=extension,
        preparation=preparation,
    )
    model.seed_ = facts.seed
    model.num_classes_ = facts.num_classes
    model.best_step_ = facts.best_step
    model.history_ = facts.history
    model.probability_ = on_graph["probability"]
    model.replicas_ = [model]
    edges = graph.user_edge_index()
    model.restore_graph(Graph(edge_index=edges, y=on_graph["labels"]))
    if isinstance(model, Auto):
        assert facts.choice is not None
        model.tell(facts.choice)


# --- the graph -----------------------------------------------------------------------


def _forms_of_graph(facts: GraphModelFacts) -> Forms:
    """What follows from the description alone."""
    nodes, edges = facts.num_nodes, facts.num_edges
    each = Form(torch.int64, (nodes,))
    forms = {
        "edge_index": Form(torch.int64, (2, edges), low=0, high=nodes),
        "entry_of_edge": Form(
            torch.int64, (facts.num_given_edges,), low=0, high=edges + nodes
        ),
        "probability": Form(facts.torch_dtype, (nodes, facts.num_classes), low=0),
        "labels": each,
    }
    keys = {_NODE_HASH: facts.row_hashes, _NODE_ID: facts.node_ids}
    return forms | {name: each for name, kept in keys.items() if kept}


def _graph_from(facts: GraphModelFacts, tensors: Tensors, where: str) -> CanonicalGraph:
    edges, names = tensors["edge_index"], tensors.get(_NODE_ID)
    keys = edges[1] * facts.num_nodes + edges[0]
    if bool((keys.diff() <= 0).any()) or bool((edges[0] == edges[1]).any()):
        raise InvalidInput(
            f"{escaped(where)} does not fit its own description: its edges are not in "
            "order; expected each once, without self-loops."
        )
    if names is not None and torch.unique(names).numel() < facts.num_nodes:
        raise InvalidInput(
            f"{escaped(where)} does not fit its own description: two nodes have one "
            "node_id; expected another one for each."
        )
    return CanonicalGraph(facts.num_nodes, edges, tensors["entry_of_edge"])


def _get_ready(
    graph: CanonicalGraph, facts: GraphModelFacts, network: Backbone
) -> None:
    """Let a network of PyG make the weights that wait for their input."""
    if type(network).prepare is not Backbone.prepare:
        topology = Topology.of(graph, self_loops=network.self_loops, device="cpu")
        shape, dtype = (facts.num_nodes, facts.num_features), facts.torch_dtype
        require_memory(
            shape[0] * shape[1] * dtype.itemsize,
            what=f"a network of {shape[1]} features on {shape[0]} nodes",
            instead="a model as it was saved",
        )
        blank = torch.zeros(shape, dtype=dtype)
        network.prepare(blank, topology.pattern, facts.num_classes)


def _forms_of_entries(facts: GraphModelFacts, network: Backbone) -> Forms:
    dtype, loops = facts.torch_dtype, facts.num_nodes if network.self_loops else 0
    entries = facts.num_edges + loops
    lead = _lead(facts.num_layers, network)
    return {
        "strengths": Form(dtype, (*lead, entries)),
        "start": Form(dtype, (entries,)),
    }


def _lead(num_layers: int, network: Backbone) -> tuple[int, ...]:
    """The axis of layers, where each has strengths of its own."""
    if num_layers not in (0, network.num_propagations):
        raise InvalidInput(
            f"the model file describes strengths of {num_layers} layers; expected "
            f"{network.num_propagations}, as the network has, or 0 for all."
        )
    return (num_layers,) if num_layers else ()


# --- members -------------------------------------------------------------------------


def _member_tensors(members: tuple[Member, ...]) -> Tensors:
    tensors: Tensors = {}
    for number, (propagation, weights) in enumerate(members):
        named = {
            _EDGES: edges_of(propagation.pattern),
            _STRENGTHS: propagation.strengths,
            **under(_WEIGHT, weights or {}),
        }
        tensors |= under(_member(number), named)
    return tensors


def _member_facts(member: Member) -> MemberFacts:
    propagation, weights = member
    return MemberFacts(
        num_edges=edges_of(propagation.pattern).shape[1],
        num_layers=_num_layers(propagation.strengths),
        weights=bool(weights),
    )


def _member_from(
    parts: Parts, number: int, facts: GraphModelFacts, network: Backbone
) -> Member:
    own, nodes = facts.members[number], facts.num_nodes
    entries = own.num_edges + (nodes if network.self_loops else 0)
    lead = _lead(own.num_layers, network)
    forms = {
        _EDGES: Form(torch.int64, (2, own.num_edges), low=0, high=nodes),
        _STRENGTHS: Form(facts.torch_dtype, (*lead, entries)),
    }
    if own.weights:
        forms |= under(_WEIGHT, weight_forms(network))
    tensors = parts.take(forms, _member(number))
    topology = Topology.from_edges(
        tensors[_EDGES], nodes, self_loops=network.self_loops, device="cpu"
    )
    if topology.num_edges != own.num_edges:
        raise InvalidInput(
            f"{escaped(parts.where)} does not fit its own description: edges of member "
            f"{number} are there twice, or self-loops; expected each once."
        )
    propagation = Propagation(topology.pattern, tensors[_STRENGTHS])
    return Member(propagation, part_of(tensors, _WEIGHT) or None)


def _member(number: int) -> str:
    return f"member{number}:"


def _num_layers(strengths: Tensor) -> int:
    return strengths.shape[0] if strengths.dim() == 2 else 0


# --- what scores new edges -----------------------------------------------------------


def _extension_from(
    parts: Parts,
    facts: GraphModelFacts,
    model: GraphClassifier,
    network: Backbone,
    backbone: type | nn.Module | None,
) -> AmortisedExtension | None:
    if facts.scorer is None:
        return None
    if facts.choice is not None:
        candidate = facts.choice.chosen.candidate
        model = estimator_from(candidate, facts.choice.parameters, backbone)
    scorer = stored_scorer(parts, facts, model, network, _EXTENSION)
    lead = scorer.structure.output.shape[:-2]
    forms = {EDGE_WEIGHTS: Form(facts.torch_dtype, (*lead, facts.num_edges))}
    if facts.scorer.first:
        forms |= under(FIRST, weight_forms(network))
    tensors = parts.take(forms, _EXTENSION)
    return AmortisedExtension(
        structure=scorer.structure,
        guess=scorer.guess,
        first=part_of(tensors, FIRST) or None,
        weights=tensors[EDGE_WEIGHTS],
    )


# --- what an automatic fit decided ---------------------------------------------------


def _choice_of(model: GraphClassifier) -> Choice | None:
    if not isinstance(model, Auto):
        return None
    tried = tuple(
        Tried(**each | {"fold_accuracy": tuple(each["fold_accuracy"])})
        for each in model.choice_
    )
    return Choice(tried, model.chosen_parameters_)


def _network_of(model: GraphClassifier, facts: GraphModelFacts) -> NetworkChoices:
    """Which network the model holds: an automatic fit may have chosen an MLP."""
    if isinstance(model, Auto) != (facts.choice is not None):
        raise InvalidInput(
            f"the model file says that {facts.method} has made "
            f"{'a' if facts.choice else 'no'} choice; expected one of auto alone."
        )
    if facts.choice is not None and facts.choice.chosen.candidate == "mlp":
        return replace(model.network(), backbone="mlp", options=None)
    return model.network()


def _preparation_from(parts: Parts, facts: GraphModelFacts) -> Preparation | None:
    if facts.preparation is None:
        return None
    kind = preparation_called(facts.preparation)
    forms = kind.forms(facts.num_features, facts.num_nodes, facts.torch_dtype)
    return kind.from_tensors(parts.take(forms, _PREPARATION))
