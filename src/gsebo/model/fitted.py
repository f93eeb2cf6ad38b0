"""What a fit leaves behind: a network, and what it learned of the edges of its graph.

A graph that was in memory is held, with the strength of each entry; of one on disk only
the checksum is known, and what each entry has of its own may lie in a file.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad, softmax

from gsebo.data.formats.folder import GraphFolder, checksums
from gsebo.data.preparation import Preparation, given_features, preparation_called
from gsebo.data.validate import sized
from gsebo.errors import InputWarning, InvalidInput
from gsebo.files import Form
from gsebo.graph import CanonicalGraph, Propagation, Topology, canonicalise
from gsebo.graph.arrays import CSRArrays, GraphArrays
from gsebo.graph.chunks import Chunk, StrengthsOf
from gsebo.graph.graph import Graph
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.graph.node_match import NodeKeys, find_entries
from gsebo.model.known import KnownEntries, extended_member, nodes_of_fit
from gsebo.model.layerwise import DEFAULT_MEMORY, ChunkedGraph
from gsebo.model.scorer import Scorer
from gsebo.model.state import (
    WEIGHT,
    FittedFacts,
    GraphFacts,
    MemberFacts,
    Parts,
    Tensors,
    edges_of,
    num_layers,
    strength_form,
    under,
)
from gsebo.nn import Backbone
from gsebo.nn.base import Features
from gsebo.sparse import make_features
from gsebo.training import Member

Array = NDArray[Any]

# What the strength of an edge is made of.
_EDGE_BYTES = 64
_OF_FEATURES = ("x", "x_indptr", "x_columns", "x_values")
_ARRAYS = ("indptr", "source", *_OF_FEATURES, "edge_weight", "edge_attr")
_PREPARATION = "preparation:"


def graph_checksum(graph: GraphFolder | GraphArrays) -> str:
    """What nodes, edges and features are known by: those of a folder, or as in one."""
    if isinstance(graph, GraphArrays):
        found = checksums(graph)
    else:
        found = {name: each.sha256 for name, each in graph.manifest.arrays.items()}
    parts = [f"{name}:{found[name]}" for name in sorted(found) if name in _ARRAYS]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class EdgePiece(NamedTuple):
    """Some edges of a graph."""

    edge_index: Tensor
    start: Tensor  # In the network as it is, [edges].
    strength: Tensor  # As learned, [edges] or [layers, edges].


@final
@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained network with what was learned of edges."""

    backbone: Backbone  # With its trained weights.
    graph: CanonicalGraph | str  # That of the fit, or only its checksum.
    num_features: int
    num_classes: int
    # What classes are called, also those that no training node has; None: by number.
    class_names: tuple[str, ...] | None = None
    learned: bool = True  # Whether the strengths were learned for this very graph.
    # Of every entry of a graph that is held, [entries] or [layers, entries]; and those
    # of the vanilla propagation there, [entries].
    strengths: Tensor | None = None
    start: Tensor | None = None
    # What each entry of a graph that is not held has of its own, [..., entries]: the
    # change of its strength, or beside a scorer a part of its score. It may lie in
    # files that go with the model.
    own: Array | None = None
    files: ScratchFolder | None = None
    # Networks on graphs of their own whose mean predicts; without any, the network runs
    # on the graph with the strengths. Weights are named.
    members: tuple[Member, ...] = ()
    nodes: NodeKeys | None = None  # What nodes are known by; None: their position.
    # Scores edges that the fit did not have; without any, they get the vanilla weight,
    # or are refused where the graph is not held.
    scorer: Scorer | None = None
    preparation: Preparation | None = None  # Of features, before the network.
    weighted: bool = False  # Whether edges of a graph that is not held have weights.

    @property
    def is_held(self) -> bool:
        """Whether the graph of the fit is in memory."""
        return not isinstance(self.graph, str)

    @property
    def is_weighted(self) -> bool:
        """Whether the edges of the fit have weights that are not all one."""
        held = self.graph
        return self.weighted if isinstance(held, str) else held.weight is not None

    @property
    def held(self) -> tuple[CanonicalGraph, Tensor]:
        """The graph of the fit and the strengths of its entries."""
        if isinstance(self.graph, str) or self.strengths is None:
            raise InvalidInput(
                "the model was fitted on a graph folder, which it does not hold; "
                "expected one that was fitted on a graph in memory."
            )
        return self.graph, self.strengths

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.backbone.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers that were learned."""
        return next(self.backbone.parameters()).dtype

    @torch.no_grad()
    def probabilities(self, data: Graph | GraphFolder) -> Tensor:
        """Class probabilities of every node of ``data``, ``[nodes, classes]``."""
        self._require_edge_values(data)
        if not self.is_held or isinstance(data, GraphFolder):
            chunked, strengths_of = self.in_chunks(data)
            found = chunked.probabilities(self.backbone, strengths_of)
            return torch.from_numpy(found)
        if self.preparation is None:
            x = given_features(data, self.num_features)
        else:
            x = self.preparation.features(data)
        (fitted, strengths), members = self.held, self.members
        graph, device = of_same_types(canonicalise(data), fitted), strengths.device
        loops = self.backbone.self_loops
        topology = Topology.of(graph, self_loops=loops, device=device)
        features = make_features(x, strengths.dtype, device)
        known = self._known(data, graph)
        if known is not None:
            strengths = self._strengths_for(known, topology, features)
            both = known.weights(fitted, topology) if members else None
            if both is not None and (changed := int((both[0] != both[1]).sum())):
                warnings.warn(
                    f"{changed} of {known.num_edges} edges have another weight than in "
                    "the graph of the fit; what was learned there of these edges stays "
                    "as it was.",
                    InputWarning,
                    stacklevel=3,
                )
            members = tuple(
                extended_member(member, fitted, known, topology, strengths)
                for member in members
            )
        members = members or (Member(Propagation(topology.pattern, strengths)),)
        logits = (
            functional_call(self.backbone, weights or {}, (features, *graph, None))
            for graph, weights in members
        )
        mean = reduce(torch.add, (softmax(one, -1) / len(members) for one in logits))
        if self.scorer is None or not self.scorer.floor:
            return mean
        tiny = torch.finfo(mean.dtype).tiny
        return self.scorer.grounded(mean.clamp(min=tiny).log(), features).softmax(-1)

    def _require_edge_values(self, data: Graph | GraphFolder) -> None:
        """Refuse a graph whose edges lack weights or attributes that the model uses."""
        named = data.manifest.arrays if isinstance(data, GraphFolder) else data
        if self.is_weighted and "edge_weight" not in named:
            raise InvalidInput(
                "the graph has no edge_weight; expected one, as in the graph of the "
                "fit: ones, if all its edges count alike."
            )
        expected = 0 if self.scorer is None else self.scorer.structure.given_values[1]
        shape = (0, 0) if "edge_attr" not in named else (*named["edge_attr"].shape, 1)
        if expected and shape[1] != expected:
            raise InvalidInput(
                f"the graph has {shape[1]} columns of edge_attr; expected {expected}, "
                "as in the graph of the fit."
            )

    def new_in(self, data: Graph) -> tuple[int, int]:
        """How many nodes and edges of ``data`` the graph of the fit does not have."""
        data = sized(data)
        known = self._known(data, of_same_types(canonicalise(data), self.held[0]))
        if known is None:
            return 0, 0
        return int((known.node < 0).sum()), known.num_new_edges

    def _known(self, data: Graph, graph: CanonicalGraph) -> KnownEntries | None:
        """What is known of a graph from the fit; ``None`` of the fit's own graph."""
        fitted, strengths = self.held
        nodes = self.nodes or NodeKeys(fitted.num_nodes)
        same = graph.fingerprint() == fitted.fingerprint()
        if same and nodes.may_be(data):
            return None
        node = nodes_of_fit(nodes, fitted, NodeKeys.of(data), graph)
        entry = find_entries(
            fitted.edge_index.cpu(),
            fitted.num_nodes,
            graph,
            node,
            self_loops=self.backbone.self_loops,
            types=fitted.types,
        )
        device = strengths.device
        return KnownEntries(entry.to(device), node.to(device), graph.num_edges)

    def _strengths_for(
        self, known: KnownEntries, topology: Topology, features: Features
    ) -> Tensor:
        """Strengths of all entries of a graph that is not the one of the fit."""
        vanilla, scorer = self._vanilla(topology), self.scorer
        if not self.learned:
            return vanilla
        if scorer is not None and (weights := scorer.weights) is not None:
            graph = ChunkedGraph(topology, features)
            # Known edges keep their weight; how it is normalised is up to the graph.
            scored = scorer.strengths(
                graph,
                self.backbone,
                self.num_classes,
                kept=lambda fresh: known.kept(weights, fresh),
            )
            assert graph.whole is not None
            return scored(graph.whole)
        if known.num_new_edges:
            warnings.warn(
                f"{known.num_new_edges} of {known.num_edges} edges are not in the "
                "graph of the fit and got the vanilla weight, because what was learned "
                "says nothing about new edges.",
                InputWarning,
                stacklevel=2,
            )
        kept = known.kept(self.held[1], vanilla)
        both = known.weights(self.held[0], topology)
        if both is None:
            return kept
        # What was learned is a factor of the weight; of an edge without any, nothing.
        then, now = both
        return torch.where(then > 0, kept * (now / then).to(kept), vanilla)

    @torch.no_grad()
    def edge_strengths(
        self, graph: ChunkedGraph, strengths_of: StrengthsOf
    ) -> Iterator[EdgePiece]:
        """All edges in their order, piece by piece, of what :meth:`in_chunks` gives."""
        loops, memory = self.backbone.self_loops, graph.memory
        for chunk in graph.chunks(
            self_loops=loops, memory=memory, edge_bytes=_EDGE_BYTES
        ):
            edges = chunk.topology.num_edges
            start = self._vanilla(chunk.topology, chunk.sums_of_rows)[:edges]
            yield EdgePiece(
                chunk.nodes[chunk.topology.graph.edge_index],
                start.cpu(),
                _within(strengths_of(chunk)[..., :edges], start).cpu(),
            )

    def _vanilla(self, topology: Topology, sums: Tensor | None = None) -> Tensor:
        """Strengths of a graph, or of a chunk of one, in the network as it is."""
        return self.backbone.initial_strength(topology.pattern, sums, topology.weights)

    def in_chunks(
        self,
        data: Graph | GraphFolder,
        memory: int = DEFAULT_MEMORY,
        scratch: Path | None = None,
    ) -> tuple[ChunkedGraph, StrengthsOf]:
        """A graph, and the strengths of its chunks by a model that does not hold one.

        Raises:
            InvalidInput: The model knows nothing of this graph.
        """
        assert not self.is_held
        arrays, is_that_of_the_fit = self._arrays_of(data)
        if arrays.num_features != self.num_features:
            raise InvalidInput(
                f"the graph has {arrays.num_features} features; expected "
                f"{self.num_features}, as in the graph of the fit."
            )
        if arrays.dtype != self.dtype:
            raise InvalidInput(
                f"the features of the graph are {_name(arrays.dtype)}; expected "
                f"{_name(self.dtype)}, as in the graph of the fit."
            )
        device, edges, own = self.device, arrays.num_edges, self.own
        graph = ChunkedGraph(arrays, memory=memory, device=device, scratch=scratch)
        allowed = [edges] if self.scorer else [edges, edges + arrays.num_nodes]
        if is_that_of_the_fit and own is not None and own.shape[-1] not in allowed:
            raise InvalidInput(
                f"the model has numbers for {own.shape[-1]} entries; expected "
                f"{' or '.join(map(str, allowed))}, as the graph of the fit has."
            )
        if self.scorer is not None:
            # What single edges had belongs to the graph of the fit alone.
            own = own if is_that_of_the_fit else None
            scored = self.scorer.strengths
            return graph, scored(graph, self.backbone, self.num_classes, own=own)
        if not is_that_of_the_fit:
            raise InvalidInput(
                "the model has one strength per edge of the graph of its fit and no "
                "other; expected that graph, or a model of the method 'amortised'."
            )
        return graph, partial(self._changed, edges)

    def _arrays_of(self, data: Graph | GraphFolder) -> tuple[GraphArrays, bool]:
        """The arrays of a graph, and whether it is that of the fit."""
        if isinstance(data, GraphFolder):
            return data.arrays(), graph_checksum(data) == self.graph
        data = copy.copy(data)
        # As in a folder; what is more precise than the model is rounded.
        data.x = data.x.detach().to(self.dtype)
        layouts = [GraphArrays.of(data)]
        if isinstance(layouts[0].x, CSRArrays) and data.x.layout == torch.strided:
            # Tables are stored with all their numbers, however many are zero.
            layouts.append(replace(layouts[0], x=data.x.cpu().numpy()))
        same = [each for each in layouts if graph_checksum(each) == self.graph]
        return (same or layouts)[0], bool(same)

    def _changed(self, edges: int, chunk: Chunk) -> Tensor:
        """The vanilla strengths of a chunk, and what each entry was changed by."""
        start = self._vanilla(chunk.topology, chunk.sums_of_rows)
        own = self.own
        if own is None:
            return start
        parts = [np.array(own[..., chunk.edges])]
        if own.shape[-1] > edges:
            parts.append(np.take(own, edges + chunk.nodes.numpy(), axis=-1))
        change = torch.from_numpy(np.concatenate(parts, axis=-1)).to(start)
        release(own)
        return start + pad(change, (0, start.numel() - change.shape[-1]))

    def mean_graph(self) -> tuple[Tensor, Tensor]:
        """Edges that messages flow along, and the mean strength of each entry.

        In canonical order, ``[2, edges]``; with self-loops if any, ``[..., entries]``.
        """
        graph, strengths = self.held
        if not self.members:
            return graph.edge_index, strengths
        edges = torch.cat(
            [edges_of(propagation.pattern) for propagation, _ in self.members], dim=1
        )
        loops = self.backbone.self_loops
        union = Topology.from_edges(
            edges, graph.num_nodes, self_loops=loops, device=edges.device
        )
        total = strengths.new_zeros(union.num_entries)
        for propagation, _ in self.members:
            on_edges, on_loops = propagation.at(union.graph)
            found = torch.cat([on_edges, on_loops], dim=-1) if loops else on_edges
            total = total + found / len(self.members)
        return union.graph.edge_index, total

    def new_edges(self) -> tuple[Tensor, Tensor]:
        """Edges that the graph of the fit does not have, with their mean strength.

        ``[2, edges]`` and ``[edges]``; of several layers the mean is taken.
        """
        edges, strengths = self.mean_graph()
        mean = strengths if strengths.dim() == 1 else strengths.mean(0)
        graph = self.held[0]
        size, given = graph.num_nodes, graph.edge_index.to(edges.device)
        keys, known = edges[0] * size + edges[1], given[0] * size + given[1]
        new = ~torch.isin(keys, known)
        return edges[:, new].cpu(), mean[: edges.shape[1]][new].cpu()

    def in_user_order(self, strengths: Tensor) -> Tensor:
        """Map ``[..., entries]`` to the edges of the user's ``edge_index``."""
        graph, start = self.held[0], self.start
        assert start is not None
        shown = _within(strengths, start).cpu()
        edges, loops = shown.tensor_split([graph.num_edges], -1)
        if not loops.shape[-1]:
            # A self-loop of the user has no entry here: the network ignores it.
            loops = edges.new_zeros(*edges.shape[:-1], graph.num_nodes)
        return graph.to_user_order(edges, loops)

    def loop_strengths(self) -> Tensor | None:
        """Strengths of the self-loops, ``[..., nodes]``, where the network has any."""
        graph, strengths = self.held
        loops = strengths[..., graph.num_edges :].clamp(0, 1).cpu()
        return loops if loops.shape[-1] else None

    def to_state(self) -> tuple[FittedFacts, Tensors]:
        """What files say of it, and all its tensors by name but ``own``."""
        tensors: Tensors = under(WEIGHT, self.backbone.state_dict())
        graph: Any = self.graph
        scorer = preparation = None
        if self.strengths is not None and self.start is not None:
            keys = self.nodes or NodeKeys(graph.num_nodes)
            graph, named = GraphFacts.of(graph, keys)
            tensors |= {"strengths": self.strengths, "start": self.start, **named}
        members = [MemberFacts.of(member) for member in self.members]
        for number, (_, named) in enumerate(members):
            tensors |= under(f"member{number}:", named)
        if self.scorer is not None:
            scorer, named = self.scorer.to_state()
            tensors |= named
        if self.preparation is not None:
            preparation = self.preparation.name
            tensors |= under(_PREPARATION, self.preparation.tensors())
        facts = FittedFacts(
            dtype=_name(self.dtype),
            num_features=self.num_features,
            num_classes=self.num_classes,
            classes=self.class_names,
            graph=graph,
            learned=self.learned,
            num_layers=num_layers(self.strengths if self.own is None else self.own),
            own=None if self.own is None else self.own.shape[-1],
            members=[facts for facts, _ in members],
            scorer=scorer,
            preparation=preparation,
            weighted=self.weighted,
        )
        return facts, tensors

    @classmethod
    def from_state(
        cls,
        facts: FittedFacts,
        parts: Parts,
        graph: tuple[CanonicalGraph, NodeKeys] | str,
        backbone: Backbone,
        scorer: Scorer | None,
        own: Array | None,
    ) -> FittedModel:
        """The model of files, from what was taken of them and from what is left."""
        known: dict[str, Any] = {"graph": graph, "own": own}
        if not isinstance(graph, str):
            held, nodes = graph
            dtype, size = facts.torch_dtype, held.num_nodes
            entries = held.num_edges + (size if backbone.self_loops else 0)
            form = strength_form(facts.num_layers, entries, dtype, backbone)
            forms = {"strengths": form, "start": Form(dtype, (entries,))}
            known = {"graph": held, "nodes": nodes, **parts.take(forms)}
            known["members"] = tuple(
                member.take(parts, number, size, dtype, backbone)
                for number, member in enumerate(facts.members)
            )
            if facts.preparation is not None:
                kind = preparation_called(facts.preparation)
                forms = kind.forms(facts.num_features, size, dtype)
                found = parts.take(forms, _PREPARATION)
                known["preparation"] = kind.from_tensors(found)
        return cls(
            backbone=backbone,
            num_features=facts.num_features,
            num_classes=facts.num_classes,
            class_names=facts.classes,
            learned=facts.learned,
            scorer=scorer,
            weighted=facts.weighted,
            **known,
        )


def of_same_types(graph: CanonicalGraph, fitted: CanonicalGraph) -> CanonicalGraph:
    """A graph whose nodes of the same type as in that of a fit have classes.

    Raises:
        InvalidInput: The types of nodes, the relations or the columns of the features
            that belong to a type are others than there.
    """
    then, now = (each.types and each.types.names for each in (fitted, graph))
    if then == now:
        if graph.types is None or fitted.types is None:
            return graph
        own, columns = graph.types.columns, fitted.types.columns
        # Where a fit has made features of its own, no column belongs to a type.
        if None not in (own, columns) and own != columns:
            raise InvalidInput(
                f"a graph whose types have the columns {own} given; expected "
                f"{columns}, as in the graph of the fit."
            )
        classified = fitted.types.classified
        types = replace(graph.types, columns=columns, classified=classified)
        return replace(graph, types=types)
    said = [
        "one type of nodes and one relation"
        if names is None
        else f"types {', '.join(names[0])} and relations "
        + ", ".join("-".join(each) for each in names[1])
        for names in (now, then)
    ]
    raise InvalidInput(
        f"a graph with {said[0]} given; expected {said[1]}, as in the graph of the fit."
    )


def _within(strengths: Tensor, start: Tensor) -> Tensor:
    """Strengths as they are told: from zero to one, or to a start that is higher."""
    return strengths.clamp(min=0).minimum(start.clamp(min=1))


def _name(dtype: torch.dtype) -> Literal["float32", "float64"]:
    return "float64" if dtype == torch.float64 else "float32"
