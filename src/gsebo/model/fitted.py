"""What a fit leaves behind: a network, a graph, and the strength of each entry."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import softmax

from gsebo.data.preparation import Preparation, given_features
from gsebo.data.validate import sized
from gsebo.graph import CanonicalGraph, Propagation, Topology, canonicalise
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import NodeKeys, find_edges, find_entries
from gsebo.model.extension import Extension, KnownEntries, VanillaForNew
from gsebo.nn import Backbone
from gsebo.nn.base import Features
from gsebo.sparse import Pattern, make_features
from gsebo.training import Member


def extended_member(
    member: Member,
    fitted_graph: CanonicalGraph,
    known: KnownEntries,
    topology: Topology,
    strengths: Tensor,
) -> Member:
    """Lay a member's own graph over a graph that is not the one of the fit.

    What joins known nodes keeps the member's strength, unless the user took that very
    edge away. What is new to the fit is added as it is in the user's graph; what the
    fit knew and the member left out stays out.

    Args:
        member: Its entries are the edges in canonical order and then the self-loops,
            for every node or none.
        fitted_graph: The user's graph of the fit.
        known: Which nodes and entries of the other graph are those of the fit.
        topology: The other graph.
        strengths: Of all its entries, ``[..., entries]``.
    """
    pattern, own = member.propagation
    device, old_size = pattern.device, pattern.num_rows
    node, self_loops = known.node.cpu(), topology.num_loops > 0
    edges = edges_of(pattern).cpu()
    given, is_new = topology.graph.edge_index.cpu(), known.entry.cpu() < 0
    carried = _carried(edges, fitted_graph, topology.graph, node)
    union = Topology.from_edges(
        torch.cat([carried, given[:, is_new[: given.shape[1]]]], dim=1),
        topology.num_nodes,
        self_loops=self_loops,
        device=device,
    )
    entry = find_entries(edges, old_size, union.graph, node, self_loops=self_loops)
    on_edges, on_loops = Propagation(topology.pattern, strengths).at(union.graph)
    fresh = torch.cat([on_edges, on_loops], dim=-1) if self_loops else on_edges
    mine = KnownEntries(entry.to(device), known.node, union.num_edges, own)
    return Member(Propagation(union.pattern, mine.kept(fresh)), member.weights)


def edges_of(pattern: Pattern) -> Tensor:
    """The entries between different nodes, as ``[2, edges]``."""
    edges = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
    return edges[:, edges[0] != edges[1]]


def _carried(
    edges: Tensor, fitted_graph: CanonicalGraph, graph: CanonicalGraph, node: Tensor
) -> Tensor:
    """Those of a member's edges that stay, by the numbers of the new graph's nodes."""
    place = torch.full((fitted_graph.num_nodes,), -1)
    place[node[node >= 0]] = (node >= 0).nonzero().squeeze(-1)
    moved = place[edges]
    then, now = fitted_graph.edge_index.cpu(), graph.edge_index.cpu()
    was_given = find_edges(then, fitted_graph.num_nodes, edges) >= 0
    is_given = find_edges(now, graph.num_nodes, moved) >= 0
    return moved[:, (moved >= 0).all(0) & (is_given | ~was_given)]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained network on its graph.

    Attributes:
        backbone: The network with its trained weights.
        graph: The canonical graph of the fit.
        strengths: Strength of every entry, ``[entries]`` or ``[layers, entries]``.
        start: Strengths of the vanilla propagation, ``[entries]``.
        learned: Whether the strengths were learned for this very graph.
        num_features: Number of feature columns.
        members: Networks on graphs of their own whose mean predicts; without any, the
            network runs on ``graph`` with ``strengths``. Weights are named.
        nodes: What the nodes of the fit are known by; ``None``: their position.
        extension: Finds strengths for a graph that is not the one of the fit; without
            any, new edges get the vanilla weight.
        preparation: What is done to the features before the network reads them.
    """

    backbone: Backbone
    graph: CanonicalGraph
    strengths: Tensor
    start: Tensor
    learned: bool
    num_features: int
    members: tuple[Member, ...] = ()
    nodes: NodeKeys | None = None
    extension: Extension | None = None
    preparation: Preparation | None = None

    @torch.no_grad()
    def probabilities(self, data: Graph) -> Tensor:
        """Class probabilities of every node of ``data``, ``[nodes, classes]``."""
        if self.preparation is None:
            x = given_features(data, self.num_features)
        else:
            x = self.preparation.features(data)
        device, dtype = self.strengths.device, self.strengths.dtype
        graph = canonicalise(data)
        topology = Topology.of(
            graph, self_loops=self.backbone.self_loops, device=device
        )
        features = make_features(x, dtype, device)
        members, strengths = self.members, self.strengths
        known = self._known(data, graph)
        if known is not None:
            strengths = self._strengths_for(known, topology, features)
            members = tuple(
                extended_member(member, self.graph, known, topology, strengths)
                for member in members
            )
        if members:
            return self._mean_probability(features, members)
        logits = self.backbone(features, topology.pattern, strengths, None)
        return softmax(logits, dim=-1)

    def new_in(self, data: Graph) -> tuple[int, int]:
        """How many nodes and edges of ``data`` the graph of the fit does not have."""
        data = sized(data)
        known = self._known(data, canonicalise(data))
        return (0, 0) if known is None else (known.num_new_nodes, known.num_new_edges)

    def _known(self, data: Graph, graph: CanonicalGraph) -> KnownEntries | None:
        """What is known of a graph from the fit; ``None`` of the fit's own graph."""
        fitted = self.nodes or NodeKeys(self.graph.num_nodes)
        same = graph.fingerprint() == self.graph.fingerprint()
        if same and fitted.may_be(data):
            return None
        node = fitted.find(NodeKeys.of(data))
        entry = find_entries(
            self.graph.edge_index.cpu(),
            self.graph.num_nodes,
            graph,
            node,
            self_loops=self.backbone.self_loops,
        )
        device = self.strengths.device
        return KnownEntries(
            entry.to(device), node.to(device), graph.num_edges, self.strengths
        )

    def _strengths_for(
        self, known: KnownEntries, topology: Topology, features: Features
    ) -> Tensor:
        if not self.learned:
            return self.backbone.initial_strength(topology.pattern)
        extension = self.extension or VanillaForNew()
        return extension.strengths(known, topology, features, self.backbone)

    def _mean_probability(
        self, features: Features, members: tuple[Member, ...]
    ) -> Tensor:
        total: Tensor | None = None
        for propagation, weights in members:
            logits = functional_call(
                self.backbone, weights or {}, (features, *propagation, None)
            )
            share = softmax(logits, dim=-1) / len(members)
            total = share if total is None else total + share
        assert total is not None
        return total

    def mean_graph(self) -> tuple[Tensor, Tensor]:
        """The edges that messages flow along, and the mean strength of each entry.

        Returns:
            ``[2, edges]`` in canonical order, and ``[..., entries]``: the edges, then
            the self-loops where the network has any.
        """
        if not self.members:
            return self.graph.edge_index, self.strengths
        edges = torch.cat(
            [edges_of(propagation.pattern) for propagation, _ in self.members], dim=1
        )
        loops = self.backbone.self_loops
        union = Topology.from_edges(
            edges, self.graph.num_nodes, self_loops=loops, device=edges.device
        )
        total = self.start.new_zeros(union.num_entries)
        for propagation, _ in self.members:
            on_edges, on_loops = propagation.at(union.graph)
            found = torch.cat([on_edges, on_loops], dim=-1) if loops else on_edges
            total = total + found / len(self.members)
        return union.graph.edge_index, total

    def new_edges(self) -> tuple[Tensor, Tensor]:
        """Edges that the graph of the fit does not have, with their mean strength.

        Returns:
            ``[2, edges]`` and ``[edges]``; of several layers the mean is taken.
        """
        edges, strengths = self.mean_graph()
        mean = strengths if strengths.dim() == 1 else strengths.mean(0)
        size, given = self.graph.num_nodes, self.graph.edge_index.to(edges.device)
        keys, known = edges[0] * size + edges[1], given[0] * size + given[1]
        new = ~torch.isin(keys, known)
        return edges[:, new].cpu(), mean[: edges.shape[1]][new].cpu()

    def in_user_order(self, strengths: Tensor) -> Tensor:
        """Map ``[..., entries]`` to the edges of the user's ``edge_index``."""
        edges, loops = self._parts(strengths)
        if loops is None:
            # A self-loop of the user has no entry here: the network ignores it.
            loops = edges.new_zeros(*edges.shape[:-1], self.graph.num_nodes)
        return self.graph.to_user_order(edges, loops)

    def loop_strengths(self) -> Tensor | None:
        """Strengths of the self-loops, ``[..., nodes]``, where the network has any."""
        return self._parts(self.strengths)[1]

    def _parts(self, strengths: Tensor) -> tuple[Tensor, Tensor | None]:
        strengths = strengths.clamp(0, 1).cpu()
        edges = strengths[..., : self.graph.num_edges]
        loops = strengths[..., self.graph.num_edges :]
        return edges, loops if loops.shape[-1] else None
