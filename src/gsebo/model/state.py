"""What files say of a fitted model, and how its parts take their tensors from them.

Nothing is believed: every tensor has to be of the form that follows from what the
description says, and is taken once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gsebo.errors import InvalidInput, escaped
from gsebo.files import (
    Count,
    Form,
    Name,
    NotNegative,
    Record,
    Sha256,
    Size,
    Text,
    check_tensors,
)
from gsebo.graph import CanonicalGraph, Propagation, Topology
from gsebo.graph.node_match import NodeKeys
from gsebo.memory import require_memory
from gsebo.nn import Backbone
from gsebo.sparse import EntryTypes, Pattern
from gsebo.training import Member

Tensors = dict[str, Tensor]
Forms = dict[str, Form]
WEIGHT = "weight:"  # What the names of a network's weights begin with.


@final
@dataclass(frozen=True)
class Parts:
    """The tensors of a file, from which one part after the other is taken."""

    left: Tensors
    where: str  # What they belong to, for messages.

    def take(self, forms: Mapping[str, Form], prefix: str = "") -> Tensors:
        """Take tensors of these forms; the prefix is part of their names in the file.

        Raises:
            InvalidInput: One is not there, or of another form.
        """
        found = {
            name: self.left.pop(prefix + name)
            for name in forms
            if prefix + name in self.left
        }
        check_tensors(under(prefix, found), under(prefix, forms), self.where)
        return found

    def take_all(self, prefix: str) -> Tensors:
        """Take whatever is called so, to be checked by who takes it."""
        return {
            name.removeprefix(prefix): self.left.pop(name)
            for name in list(self.left)
            if name.startswith(prefix)
        }

    def require_nothing_else(self) -> None:
        """Raise if the file holds what belongs to no part."""
        check_tensors(self.left, {}, self.where)

    def misfit(self, reason: str) -> InvalidInput:
        """What is raised for tensors that contradict each other."""
        return InvalidInput(
            f"{escaped(self.where)} does not fit its own description: {reason}."
        )


def under(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The same with longer names: those of one part of a file."""
    return {prefix + name: each for name, each in named.items()}


def forms_of(tensors: Mapping[str, Tensor]) -> Forms:
    """The forms of tensors that are there; what is still to be made has none."""
    return {
        name: Form(tensor.dtype, tuple(tensor.shape))
        for name, tensor in tensors.items()
        if not is_lazy(tensor)
    }


def weight_forms(network: nn.Module) -> Forms:
    """Forms of the weights of a network that are trained, by name."""
    named = network.named_parameters()
    return forms_of({name: weight for name, weight in named if weight.requires_grad})


def edges_of(pattern: Pattern) -> Tensor:
    """The entries between different nodes, as ``[2, edges]``."""
    edges = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
    return edges[:, edges[0] != edges[1]]


def num_layers(strengths: Any) -> int:
    """Layers with strengths of their own; 0 where all share them."""
    return 0 if strengths is None or strengths.ndim == 1 else len(strengths)


def strength_form(
    layers: int, entries: int, dtype: torch.dtype, network: Backbone
) -> Form:
    """The form of strengths that were learned, for each layer or for all at once."""
    if layers not in (0, network.num_propagations):
        raise InvalidInput(
            f"the model file describes strengths of {layers} layers; expected "
            f"{network.num_propagations}, as the network has, or 0 for all."
        )
    return Form(dtype, (layers, entries) if layers else (entries,))


class GraphFacts(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A graph of a fit that the model holds."""

    num_nodes: Count
    num_edges: Size  # Each once and without self-loops.
    num_given_edges: Size  # As the user gave them.
    row_hashes: bool  # Whether nodes are known by their features,
    node_ids: Literal["numbers", "texts"] | None  # and by names of the user.
    edge_weights: bool = False  # Whether edges have weights that are not all one.
    # Where there are several types of nodes or relations: what they are called, and
    # which columns of the features belong to each type.
    node_types: tuple[Text, ...] = ()
    edge_types: tuple[tuple[Text, Text, Text], ...] = ()
    columns: tuple[tuple[Size, Size], ...] = ()
    classified: Size | None = None  # Number of the type whose nodes have classes.

    @classmethod
    def of(cls, graph: CanonicalGraph, nodes: NodeKeys) -> tuple["GraphFacts", Tensors]:
        """What is said of a graph, and its tensors."""
        tensors = {"edge_index": graph.edge_index, "entry_of_edge": graph.entry_of_edge}
        if nodes.row_hash is not None:
            tensors["node_hash"] = nodes.row_hash
        if graph.weight is not None:
            tensors["edge_weight"] = graph.weight
        types = graph.types
        if types is not None:
            tensors["node_type"] = types.node_type
            tensors["edge_type"] = types.edge_type
        kind: Literal["numbers", "texts"] | None = None
        if isinstance(nodes.node_id, Tensor):
            kind, tensors["node_id"] = "numbers", nodes.node_id
        elif nodes.node_id is not None:
            kind = "texts"
            tensors["node_id"], tensors["node_id_end"] = _as_bytes(nodes.node_id)
        facts = cls(
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            num_given_edges=graph.entry_of_edge.numel(),
            row_hashes="node_hash" in tensors,
            node_ids=kind,
            edge_weights=graph.weight is not None,
            node_types=() if types is None else types.node_types,
            edge_types=() if types is None else types.edge_types,
            columns=() if types is None else types.columns or (),
            classified=None if types is None else types.classified,
        )
        return facts, tensors

    def take(self, parts: Parts) -> tuple[CanonicalGraph, NodeKeys]:
        """Take the graph, and what its nodes are known by, from a file."""
        nodes, edges = self.num_nodes, self.num_edges
        given, each = self.num_given_edges, Form(torch.int64, (nodes,))
        forms = {
            "edge_index": Form(torch.int64, (2, edges), low=0, high=nodes),
            "entry_of_edge": Form(torch.int64, (given,), low=0, high=edges + nodes),
        }
        numbers = self.node_ids == "numbers"
        keys = {"node_hash": self.row_hashes, "node_id": numbers}
        forms |= {name: each for name, there in keys.items() if there}
        if self.edge_weights:
            forms["edge_weight"] = Form(torch.float64, (edges,), low=0)
        relations = len(self.edge_types)
        if relations:
            kinds = len(self.node_types)
            forms["node_type"] = Form(torch.int64, (nodes,), low=0, high=kinds)
            forms["edge_type"] = Form(torch.int64, (edges,), low=0, high=relations)
        found = parts.take(forms)
        ends, names = found["edge_index"], found.get("node_id")
        texts = _take_texts(parts, nodes) if self.node_ids == "texts" else None
        places = ends[1] * nodes + ends[0]
        if relations:
            places = places * relations + found["edge_type"]
        if bool((places.diff() <= 0).any()) or bool((ends[0] == ends[1]).any()):
            raise parts.misfit(
                "its edges are not in order; expected each once, without self-loops"
            )
        distinct = nodes if names is None else torch.unique(names).numel()
        if distinct < nodes or (texts is not None and len(set(texts.tolist())) < nodes):
            raise parts.misfit(
                "two nodes have one node_id; expected another one for each"
            )
        weight = found.get("edge_weight")
        types = self._types(found, parts) if relations else None
        graph = CanonicalGraph(nodes, ends, found["entry_of_edge"], weight, types=types)
        known = names if texts is None else texts
        return graph, NodeKeys(nodes, found.get("node_hash"), known)

    def _types(self, found: Tensors, parts: Parts) -> EntryTypes:
        """Types of nodes and edges, if what is said of them fits."""
        names, relations = self.node_types, self.edge_types
        if len(set(names)) < len(names) or len(set(relations)) < len(relations):
            raise parts.misfit("two of its types or relations have one name")
        if any(end not in names for each in relations for end in each[::2]):
            raise parts.misfit("a relation joins a type that it does not have")
        if self.classified is not None and self.classified >= len(names):
            raise parts.misfit("its type that has classes is none of its types")
        if self.columns:
            ordered = sorted(self.columns)
            bounds = [0, *(end for _, end in ordered)]
            fits = [first for first, _ in ordered] == bounds[:-1]
            fits = fits and all(first < end for first, end in ordered)
            if len(ordered) != len(names) or not fits:
                raise parts.misfit("its columns are not those of each type")
        node_type, edge_type = found["node_type"], found["edge_type"]
        ends = [[names.index(end) for end in each[::2]] for each in relations]
        if not torch.equal(
            torch.tensor(ends)[edge_type].T, node_type[found["edge_index"]]
        ):
            raise parts.misfit("an edge joins other types than its relation does")
        return EntryTypes(
            node_type,
            edge_type,
            names,
            relations,
            self.columns or None,
            self.classified,
        )


def _as_bytes(texts: NDArray[np.str_]) -> tuple[Tensor, Tensor]:
    """All texts in UTF-8, one after the other, and where each ends."""
    encoded = [text.encode() for text in texts.tolist()]
    flat = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    return torch.from_numpy(flat.copy()), torch.from_numpy(ends)


def _take_texts(parts: Parts, count: int) -> NDArray[np.str_]:
    """Take what :func:`_as_bytes` gave."""
    held = parts.left.get("node_id")
    size = 0 if held is None or held.dim() != 1 else held.shape[0]
    places = Form(torch.int64, (count,), low=0, high=size + 1)
    forms = {"node_id": Form(torch.uint8, (size,)), "node_id_end": places}
    found = parts.take(forms)
    ends, flat = found["node_id_end"], found["node_id"].numpy().tobytes()
    if int(ends[-1]) != size or bool((ends.diff() <= 0).any()) or not int(ends[0]):
        raise parts.misfit("texts of node_id do not follow each other")
    starts = [0, *ends.tolist()]
    try:
        texts = [flat[begin:end].decode() for begin, end in pairwise(starts)]
    except UnicodeDecodeError as error:
        raise parts.misfit("node_id holds bytes that are no text") from error
    require_memory(4 * count * max(map(len, texts)), what="names of the nodes")
    return np.array(texts, dtype=np.str_)


class MemberFacts(Record, frozen=True, kw_only=True):
    """One of several networks whose mean predicts."""

    num_edges: Size  # Of its own graph.
    num_layers: Size
    weights: bool  # Whether it has weights of its own.

    @classmethod
    def of(cls, member: Member) -> tuple["MemberFacts", Tensors]:
        """What is said of a member, and its tensors."""
        (pattern, strengths), weights = member
        edges, named = edges_of(pattern), under(WEIGHT, weights or {})
        facts = cls(
            num_edges=edges.shape[1],
            num_layers=num_layers(strengths),
            weights=bool(weights),
        )
        return facts, {"edges": edges, "strengths": strengths, **named}

    def take(
        self,
        parts: Parts,
        number: int,
        num_nodes: int,
        dtype: torch.dtype,
        network: Backbone,
    ) -> Member:
        """Take the member from a file."""
        loops, edges, prefix = network.self_loops, self.num_edges, f"member{number}:"
        entries = edges + (num_nodes if loops else 0)
        forms = {
            "edges": Form(torch.int64, (2, edges), low=0, high=num_nodes),
            "strengths": strength_form(self.num_layers, entries, dtype, network),
        }
        found, weights = parts.take(forms, prefix), None
        if self.weights:
            weights = parts.take(weight_forms(network), prefix + WEIGHT)
        topology = Topology.from_edges(
            found["edges"], num_nodes, self_loops=loops, device="cpu"
        )
        if topology.num_edges != edges:
            raise parts.misfit(
                f"edges of member {number} are there twice, or self-loops; expected "
                "each once"
            )
        return Member(Propagation(topology.pattern, found["strengths"]), weights)


class ScorerFacts(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A function that scores edges."""

    centred: bool  # Whether the features of the fit were dense, and have a centre.
    features_only: bool  # Whether it looks at predictions from features alone,
    first: bool  # and at those of a first network.
    edge_weight: bool = False  # Whether it looks at the weights that edges are given,
    edge_attr: Size = 0  # and at how many columns of their attributes.
    relations: Size = 0  # How many relations it tells apart; 0: none.
    # How much features alone count in a prediction; None: not at all.
    floor: NotNegative | None = None


class FittedFacts(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What files say of a fitted model."""

    dtype: Literal["float32", "float64"]
    num_features: Count
    num_classes: Count
    # Names of the classes, also of those that no training node has; none for numbers.
    classes: tuple[Text, ...] | None
    graph: GraphFacts | Sha256  # That of the fit, or only its checksum.
    learned: bool
    num_layers: Size  # Layers with strengths of their own; 0 where all share them.
    own: Count | None  # Entries with numbers of their own of a graph that is not held.
    members: list[MemberFacts]
    scorer: ScorerFacts | None
    preparation: Name | None
    weighted: bool = False  # Whether edges of a graph that is not held have weights.

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of the numbers that were learned."""
        return torch.float64 if self.dtype == "float64" else torch.float32
