"""DropEdge: every training step sees another random part of the graph."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.graph import Propagation, Topology
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline
from gsebo.methods.parameters import ShareBelowOne
from gsebo.sparse import Noise, uniform
from gsebo.sparse.pattern import subpattern
from gsebo.training import Member, Task

_SITE = 1000


@final
@dataclass(kw_only=True, eq=False, repr=False)
class DropEdge(JointBaseline):
    """Random edges are dropped in every training step (Rong et al., ICLR 2020).

    What is left is normalised again, and the backbone is trained on it for one step.
    Self-loops are never dropped. Predictions use the whole graph.

    Args:
        drop_rate: Share of the edges that a step leaves out: of n pairs it keeps
            ``int((1 - drop_rate) * n)``.
        directed: Drop (i, j) and (j, i) independently, as the authors' code does, so
            that the rest is not symmetric. Otherwise both stay or both go.
        per_layer: Draw the edges for each layer anew instead of once for all.
    """

    drop_rate: ShareBelowOne = 0.1
    directed: bool = False
    per_layer: bool = False

    def _problem(self, task: Task) -> "DropEdgeProblem":
        return DropEdgeProblem(task, self)


@final
class EdgeDrop:
    """Keeps ``int((1 - rate) * n)`` of the n pairs of a graph, and all self-loops.

    A pair is an edge together with its opposite, if there is one: both stay or both go,
    so that an undirected graph stays undirected. If ``directed`` it is a single edge.
    """

    def __init__(self, graph: Topology, rate: float, *, directed: bool) -> None:
        edges = torch.arange(graph.num_edges, device=graph.pattern.device)
        self._pair_of_edge = edges if directed else _pair_of_edge(graph)
        self._num_loops = graph.num_loops
        self.num_pairs = int(self._pair_of_edge.max()) + 1 if graph.num_edges else 0
        # 1 - 0.9 is a little below 0.1 in binary, but a tenth of ten pairs is one.
        self.num_kept = math.floor((1 - rate) * self.num_pairs + 1e-9)

    def kept_entries(self, noise: Noise, site: int) -> Tensor:
        """Draw the entries to keep, bool ``[entries]``; each pair is equally likely."""
        pair_of_edge = self._pair_of_edge
        # Double precision draws more bits, so that there are hardly any ties.
        like = torch.empty((), dtype=torch.float64, device=pair_of_edge.device)
        drawn = uniform((self.num_pairs,), noise, site, like)
        # A stable order settles a tie in the same way on every device.
        first = drawn.argsort(stable=True)[: self.num_kept]
        kept = torch.zeros_like(drawn, dtype=torch.bool)
        kept[first] = True
        loops = kept.new_ones(self._num_loops)
        return torch.cat([kept.index_select(0, pair_of_edge), loops])


def _pair_of_edge(graph: Topology) -> Tensor:
    """Number the pairs by their first edge, ``[edges]``."""
    reverse = graph.reverse_edge
    edge = torch.arange(graph.num_edges, device=reverse.device)
    is_first = (reverse < 0) | (edge <= reverse)
    number = is_first.cumsum(0) - 1
    return torch.where(is_first, number, number[reverse])


@final
class DropEdgeProblem(BaselineProblem[DropEdge]):
    """Training loss on a random part of the graph; predictions on all of it."""

    learned = False

    def __init__(self, task: Task, method: DropEdge) -> None:
        super().__init__(task, method)
        self._drop = EdgeDrop(task.graph, method.drop_rate, directed=method.directed)
        if method.per_layer and not self._a_weight_of_zero_removes():
            raise InvalidInput(
                f"per_layer=True given with {type(task.backbone).__name__}, where an "
                "edge of weight 0 still counts; expected per_layer=False, or for a GAT "
                "backbone_options={'renormalise': True}."
            )

    def initial_outer(self) -> Tree:
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        noise = Noise(self.task.seed, step)
        return self.loss_on(self.left_over(noise), weights, noise)

    @torch.no_grad()
    def left_over(self, noise: Noise) -> Propagation:
        """The graph of one training step, in its vanilla propagation."""
        if not self.method.per_layer:
            return self._removed(self._drop.kept_entries(noise, _SITE))
        layers = range(self.task.backbone.num_propagations)
        kept = [self._drop.kept_entries(noise, _SITE + layer) for layer in layers]
        return self._weighed(torch.stack(kept))

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self.given)]

    def _removed(self, kept: Tensor) -> Propagation:
        """Take the other entries out of the graph: right for every network."""
        graph = self.task.graph
        part = subpattern(graph.pattern, kept)
        weights = None if graph.weights is None else graph.weights[kept]
        start = self.task.backbone.initial_strength(part, weights=weights)
        return Propagation(part, start)

    def _weighed(self, kept: Tensor) -> Propagation:
        """Give them a weight of 0: layers share a pattern, but each has weights."""
        graph, weights = self.task.graph, kept.to(self.task.dtype)
        if graph.weights is not None:
            weights = weights * graph.weights.to(weights)
        return self.weighted(graph.pattern, weights)

    @torch.no_grad()
    def _a_weight_of_zero_removes(self) -> bool:
        """Ask the network, because attention may count what has no weight."""
        kept = self._drop.kept_entries(Noise(self.task.seed, 0), _SITE)
        weights = self.task.initial_weights()
        removed, weighed = (
            self.task.logits(weights, *propagation, None)
            for propagation in (self._removed(kept), self._weighed(kept))
        )
        rounding = 1e-4 * float(removed.abs().max())
        return float((removed - weighed).abs().max()) <= rounding
