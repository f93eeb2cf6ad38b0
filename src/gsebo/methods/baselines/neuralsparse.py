"""NeuralSparse: each node keeps a few neighbors, chosen by a learned score.

Of the neighbors j of node i, with features x and Gumbel noise g,

    z_ij = v · ReLU(U_target x_i + U_source x_j + b),
    p_ij = softmax_j((z_ij + g_ij) / temperature),
    w_ij = p_ij if it is among the k largest of node i, else 0.

All of it lives on the edges of the graph; no matrix of all pairs is made.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count
from gsebo.graph import Propagation, Topology
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    JointBaseline,
    new_network,
    weights_of,
)
from gsebo.methods.parameters import Rate, SideWidth
from gsebo.nn.base import Features
from gsebo.sparse import Noise, Pattern, edge_softmax, row_expand, uniform
from gsebo.sparse.pattern import subpattern
from gsebo.training import Member, Task

_SITE = 1000
# No training step has this number, so that evaluation has noise of its own.
_EVALUATION = -1
_TEMPERATURE = "temperature"
_DECAY, _REFRESHED_EVERY, _COLDEST = 1e-3, 50, 0.05


@final
@dataclass(kw_only=True, eq=False, repr=False)
class NeuralSparse(JointBaseline):
    """Each node keeps its k best neighbors (Zheng et al., ICML 2020).

    A network scores every edge by the features at its ends. Of the softmax of the
    scores over the neighbors of a node, with Gumbel noise and a temperature that falls
    while training, the k largest are the weights of the edges, the others are dropped.
    Scores and backbone are trained together on the training loss.

    Args:
        num_neighbors: k.
        scorer_channels: Width of the hidden layer of the scoring network.
        structure_lr: Learning rate of the scoring network.
        compat: Keep the Gumbel noise in predictions, as the public ports do by
            mistake. It is drawn once for the fit.
    """

    uses_edge_weight: ClassVar[bool] = False

    num_neighbors: Count = 5
    scorer_channels: SideWidth = 32
    structure_lr: Rate = 0.001
    compat: bool = False

    def _problem(self, task: Task) -> "NeuralSparseProblem":
        return NeuralSparseProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer(self.inner_optimizer, self.structure_lr)


def row_top(pattern: Pattern, values: Tensor, count: int) -> Tensor:
    """Say which entries are among the ``count`` largest of their row, ``[entries]``.

    Of equal values, the entry that comes first is the larger one.

    >>> pattern = Pattern.from_positions(torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    >>> row_top(pattern, torch.tensor([0.3, 0.7]), 1)
    tensor([False,  True])
    """
    falling = values.detach().argsort(descending=True, stable=True)
    by_row = pattern.row_of_entry[falling].argsort(stable=True)
    entry = falling[by_row]
    # Now entries lie as the pattern stores them, row after row.
    begin = pattern.indptr[pattern.rows.long()]
    rank = torch.arange(len(entry), device=entry.device) - begin
    chosen = torch.empty_like(entry, dtype=torch.bool)
    chosen[entry] = rank < count
    return chosen


@final
class NeighborScorer(nn.Module):
    """The scores z of all edges, from the features at their two ends.

    The last layer has no bias: it would shift all neighbors of a node alike, which a
    softmax does not see.
    """

    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()
        # The columns of both ends in one matrix, so that one product serves both.
        self.ends = nn.Parameter(torch.empty(in_channels, 2 * hidden_channels))
        self.bias = nn.Parameter(torch.zeros(hidden_channels, 1))
        self.output = nn.Parameter(torch.empty(1, hidden_channels))
        # To the network both ends are one input of 2 * in_channels numbers.
        bound = math.sqrt(6 / (2 * in_channels + hidden_channels))
        nn.init.uniform_(self.ends, -bound, bound)
        nn.init.xavier_uniform_(self.output)

    def forward(self, features: Features, pattern: Pattern) -> Tensor:
        """Return the score of every entry; the pattern has no self-loops."""
        target, source = (features @ self.ends).T.chunk(2)
        hidden = row_expand(pattern, target + self.bias) + row_expand(pattern.T, source)
        return (self.output @ torch.relu(hidden)).squeeze(0)


def sparsified(
    pattern: Pattern, scores: Tensor, temperature: Tensor | float, num_neighbors: int
) -> tuple[Tensor, Tensor]:
    """Choose at most k neighbors of every node by z (+ g), and weigh them.

    Returns which entries are chosen, bool ``[entries]``, and the weights of those,
    ``[chosen entries]``. The pattern has no self-loops.
    """
    share = edge_softmax(pattern, scores / temperature)
    chosen = row_top(pattern, share, num_neighbors)
    return chosen, share[chosen]


def gumbel_noise(size: int, noise: Noise, site: int, like: Tensor) -> Tensor:
    """Draw ``[size]`` numbers of the standard Gumbel distribution."""
    # In double precision: single cuts off the upper tail, where the choice is made.
    exact = torch.empty((), dtype=torch.float64, device=like.device)
    return -torch.log(-torch.log(uniform((size,), noise, site, exact))).to(like.dtype)


def temperature_at(step: int) -> float:
    """Temperature of a training step: it falls every 50 steps, down to 0.05.

    >>> [round(temperature_at(step), 3) for step in (0, 49, 50, 99, 5000)]
    [1.0, 1.0, 0.951, 0.951, 0.05]
    """
    refreshed = step - step % _REFRESHED_EVERY
    return max(_COLDEST, math.exp(-_DECAY * refreshed))


@final
class NeuralSparseProblem(BaselineProblem[NeuralSparse]):
    """Training loss on the chosen neighbors.

    The temperature of the last step is remembered, because predictions use it too.
    """

    def __init__(self, task: Task, method: NeuralSparse) -> None:
        super().__init__(task, method)
        given, device = task.graph.graph, task.device
        self._edges = Topology.of(given, self_loops=False, device=device).pattern
        sizes = task.features.shape[1], method.scorer_channels
        self._scorer = new_network(task, _SITE, NeighborScorer, *sizes)

    def initial_outer(self) -> Tree:
        start = torch.tensor([temperature_at(0)]).to(self.task.device, self.task.dtype)
        return {**weights_of(self._scorer), _TEMPERATURE: start}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        noise = Noise(self.task.seed, step)
        chosen = self.chosen(outer, temperature_at(step), noise)
        return self.loss_on(chosen, weights, noise)

    def chosen(
        self, outer: Tree, temperature: Tensor | float, noise: Noise | None
    ) -> Propagation:
        """The chosen neighbors with their weights, normalised."""
        scorer = {name: leaf for name, leaf in outer.items() if name != _TEMPERATURE}
        inputs = (self.task.features, self._edges)
        scores: Tensor = functional_call(self._scorer, scorer, inputs)
        if noise is not None:
            scores = scores + gumbel_noise(scores.numel(), noise, _SITE, scores)
        count = self.method.num_neighbors
        kept, weights = sparsified(self._edges, scores, temperature, count)
        # A node does not compete with its neighbors: its loop always weighs one.
        loops = weights.new_ones(self.task.graph.num_loops)
        kept, weights = torch.cat([kept, loops.bool()]), torch.cat([weights, loops])
        # Others are taken out, not given a weight of 0: attention would still see them.
        return self.weighted(subpattern(self.task.graph.pattern, kept), weights)

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        noise = Noise(self.task.seed, _EVALUATION) if self.method.compat else None
        return [Member(self.chosen(outer, outer[_TEMPERATURE], noise))]

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        now = torch.full_like(outer[_TEMPERATURE], temperature_at(step - 1))
        return {**outer, _TEMPERATURE: now}
