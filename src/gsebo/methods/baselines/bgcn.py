"""BGCN: graphs drawn from a block model take the place of the observed one.

The model is an assortative one with mixed membership: node a belongs to block k to the
share π_ak. Two nodes that meet in block k link with probability β_k, and with a small
probability δ if they meet in none:

    L_ab = δ + Σ_k (β_k - δ) π_ak π_bk

The parameters are φ and θ, with π = φ / Σφ and β = θ_1 / (θ_0 + θ_1), and they climb
the likelihood of links and sampled non-links. A sum over pairs only needs the pairs'
L_ab and products with π, so that nothing of the size pairs x blocks is ever held.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph import Propagation, Topology
from gsebo.methods.baselines.pairs import sample_links
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline, both_ways
from gsebo.methods.parameters import ShareBelowOne, Steps
from gsebo.sparse import Noise, Pattern, row_sum, sddmm, spmm, uniform
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy
from gsebo.training.tape_derivatives import FLAT

# The first fit takes large steps, the others begin as if far advanced.
_RANDOM_SCALE, _REFIT_FIRST = 0.1, 10_000
# Far from the places of networks and of sampled graphs.
_FIRST_SITE, _SITES_PER_ITERATION = 1_000_000, 4
# Pairs for one gradient by θ at most: a share of all grows with the square of nodes.
_MOST_PAIRS = 1 << 20
_STEP_DELAY = 1024
# A pair that the model holds for impossible must not divide by zero.
_LEAST_PROBABILITY = 1e-10
# A parameter moves in proportion to itself: from zero it would never come back.
_LEAST_PARAMETER = 1e-30


@final
@dataclass(kw_only=True, eq=False, repr=False)
class BGCN(JointBaseline):
    """A GCN on graphs drawn from a block model (Zhang et al., AAAI 2019).

    After some epochs on the given graph, a mixed-membership block model is fitted to
    it, beginning from the classes that the GCN predicts. From then on every epoch draws
    a graph from the model and trains on that alone; now and then the model is fitted
    again. Predictions are averaged over the last epochs, each with its own weights and
    graph. The direction of edges does not count for the block model. Validation nodes
    are only looked at.

    Args:
        warmup_epochs: Epochs on the given graph.
        refit_every: Epochs between two fits of the block model.
        average_after: Epochs after which predictions are averaged.
        random_iterations: Steps of the first fit, which begins at random and only
            says how large the parameters are.
        refit_iterations: Steps of each fit that begins from predicted classes.
        batch_nodes: Nodes in a batch of such a step.
        nonlink_share: Share of the pairs without an edge that a step samples for the
            densities of the blocks.
        delta: Probability of an edge between blocks.
        compat: Weight decay on the first layer alone, as in the authors' code.
    """

    uses_edge_weight: ClassVar[bool] = False
    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    max_epochs: Steps = 300
    select_by: SelectBy = "last"
    warmup_epochs: Steps = 200
    refit_every: Steps = 20
    average_after: Steps = 240
    random_iterations: Steps = 1000
    refit_iterations: Steps = 200
    batch_nodes: Count = 500
    nonlink_share: ShareBelowOne = 0.01
    delta: ShareBelowOne = 1e-4
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.warmup_epochs <= self.average_after < self.max_epochs:
            raise InvalidInput(
                f"warmup_epochs={self.warmup_epochs}, average_after="
                f"{self.average_after} and max_epochs={self.max_epochs} given; "
                "expected warmup_epochs <= average_after < max_epochs."
            )

    def _problem(self, task: Task) -> "BGCNProblem":
        return BGCNProblem(task, self)


@final
class BGCNProblem(BaselineProblem[BGCN]):
    """Training loss on the given graph at first, then on drawn ones."""

    def __init__(self, task: Task, method: BGCN) -> None:
        super().__init__(task, method)
        self._fit = BlockFit(
            task.graph,
            delta=method.delta,
            batch_nodes=method.batch_nodes,
            nonlink_share=method.nonlink_share,
        )

    def initial_outer(self) -> Tree:
        """A random block model, and nothing yet of its fits and of averaged steps."""
        nodes, classes = self.task.num_nodes, self.task.num_classes
        blocks = Blocks.at_random(nodes, classes, self.task.seed)
        weights = self.task.initial_weights()[FLAT]
        return {
            "phi": blocks.phi.to(weights),
            "theta": blocks.theta.to(weights),
            "block": weights.new_empty(0, nodes),
            "density": weights.new_empty(0, classes),
            "weights": weights.new_empty(0, weights.numel()),
            "probability": weights.new_zeros(nodes, classes),
        }

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        warm = step >= self.method.warmup_epochs
        graph = self.drawn(outer, step) if warm else self.given
        logits = self.task.logits(weights, *graph, Noise(self.task.seed, step))
        loss = self.task.loss_of(logits)
        if self.method.compat:
            return loss + self.task.first_layer_penalty(weights)
        return loss + self.task.penalty(weights)

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Remember what this step predicts, and fit the block model when it is due."""
        method, outer = self.method, dict(outer)
        if step > method.average_after:
            logits = self.task.logits(weights, *self.drawn(outer, step - 1), None)
            outer["probability"] = outer["probability"] + logits.softmax(-1)
            outer["weights"] = _appended(outer["weights"], weights[FLAT])
        # After the last step no fit would be of use.
        due = range(method.warmup_epochs, method.max_epochs, method.refit_every)
        if step in due:
            blocks = self._refitted(weights, outer, step)
            outer["phi"], outer["theta"] = blocks
            hard = blocks.membership.argmax(-1).to(blocks.phi)
            outer["block"] = _appended(outer["block"], hard)
            outer["density"] = _appended(outer["density"], blocks.density)
        return outer

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        """The averaged steps; before there are any, the given graph."""
        kept = enumerate(outer["weights"], start=self.method.average_after)
        found = [Member(self.drawn(outer, step), {FLAT: flat}) for step, flat in kept]
        return found or [Member(self.given)]

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """The same as the members predict, from the sum of their probabilities."""
        averaged = len(outer["weights"])
        if averaged == 0:
            return super().scores(weights, outer)
        mean = outer["probability"] / averaged
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    @torch.no_grad()
    def drawn(self, outer: Tree, step: int) -> Propagation:
        """The graph that a step is trained on, in its vanilla propagation."""
        method = self.method
        latest = (step - method.warmup_epochs) // method.refit_every
        block, density = outer["block"][latest].long(), outer["density"][latest]
        noise = Noise(self.task.seed, step)
        pairs = sample_links(block, density, method.delta, noise)
        return self.unweighted(both_ways(pairs))

    def _refitted(self, weights: Tree, outer: Tree, step: int) -> "Blocks":
        method, noise = self.method, Noise(self.task.seed, step)
        blocks = Blocks(outer["phi"], outer["theta"])
        if step == method.warmup_epochs:
            blocks = self._fit.climb(
                blocks,
                iterations=method.random_iterations,
                noise=noise,
                scale=_RANDOM_SCALE,
            )
        predicted = self.task.logits(weights, *self.given, None).softmax(-1)
        return self._fit.climb(
            self._fit.restart(blocks, predicted),
            iterations=method.refit_iterations,
            noise=noise,
            first=_REFIT_FIRST,
        )


def _appended(rows: Tensor, row: Tensor) -> Tensor:
    return torch.cat([rows, row.unsqueeze(0)])


class Blocks(NamedTuple):
    """Parameters of the model."""

    phi: Tensor  # Unnormalised membership of each node, [nodes, blocks].
    theta: Tensor  # Weight against and for a link inside each block, [blocks, 2].

    @property
    def membership(self) -> Tensor:
        """π, ``[nodes, blocks]``."""
        return self.phi / self.phi.sum(-1, keepdim=True)

    @property
    def density(self) -> Tensor:
        """β: probability of a link inside each block, ``[blocks]``."""
        return self.theta[:, 1] / self.theta.sum(-1)

    @classmethod
    def at_random(cls, num_nodes: int, num_blocks: int, seed: int) -> "Blocks":
        """Draw φ from Gamma(1 / blocks) and θ from Gamma(1), on the CPU."""
        generator = np.random.default_rng(seed)
        phi = generator.gamma(1 / num_blocks, size=(num_nodes, num_blocks))
        theta = generator.gamma(1.0, size=(num_blocks, 2))
        return cls(*(torch.from_numpy(x).clamp(_LEAST_PARAMETER) for x in (phi, theta)))


def climbed(parameter: Tensor, climb: Tensor, step: float) -> Tensor:
    """One step uphill, pulled a little towards zero: |x + step (x g - x / 1000)|."""
    moved = parameter + step * (climb - 0.001 * parameter)
    return moved.abs().clamp(min=_LEAST_PARAMETER)


class Meetings(NamedTuple):
    """Sums over the partners b of each node a, Q_ab the probability of what is seen."""

    number: Tensor  # Σ c_ab, [nodes]
    total: Tensor  # Σ c_ab / Q_ab, [nodes]
    mixed: Tensor  # Σ c_ab / Q_ab π_bk, [nodes, blocks]


def at_links(blocks: Blocks, delta: float, links: Pattern) -> Meetings:
    """Sum over the links of every node; there Q = L, and each link counts once."""
    membership = blocks.membership
    left = membership * (blocks.density - delta)
    probability = delta + sddmm(links, left, membership)
    inverse = 1 / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(
        links.row_counts.to(inverse.dtype),
        row_sum(links, inverse),
        spmm(links, inverse, membership),
    )


def at_nonlinks(
    blocks: Blocks, delta: float, rows: Tensor, columns: Tensor, weight: Tensor
) -> Meetings:
    """Sum over non-links of nodes a and b, weighted by c_ab; there Q = 1 - L."""
    membership = blocks.membership
    left = membership.index_select(0, rows) * (blocks.density - delta)
    right = membership.index_select(0, columns)
    probability = 1 - delta - left @ right.mT
    scaled = weight / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(weight.sum(-1), scaled.sum(-1), scaled @ right)


def phi_climb(
    blocks: Blocks, delta: float, rows: Tensor, links: Meetings, nonlinks: Meetings
) -> Tensor:
    """φ times the gradient of the log-likelihood by φ, ``[rows, blocks]``.

    φ_ak g_ak = Σ_b c_ab (f_ab(k) / Q_ab - π_ak), where
    f_ab(k) = π_ak (B(y; β_k) π_bk + B(y; δ) (1 - π_bk)).
    """
    gain = blocks.density - delta
    seen = delta * links.total.unsqueeze(-1) + gain * links.mixed
    unseen = (1 - delta) * nonlinks.total.unsqueeze(-1) - gain * nonlinks.mixed
    number = (links.number + nonlinks.number).unsqueeze(-1)
    return blocks.membership.index_select(0, rows) * (seen + unseen - number)


def theta_climb(blocks: Blocks, links: Meetings, nonlinks: Tensor) -> Tensor:
    """θ times the gradient of the log-likelihood by θ, ``[blocks, 2]``.

    θ_ki g_ki = Σ_ab c_ab B(y; β_k) π_ak π_bk / Q_ab (1[y = i] - θ_ki / Σ_i θ_ki),
    over pairs without order; of non-links Σ c_ab π_ak π_bk / Q_ab is given.
    """
    density = blocks.density
    share = torch.stack([1 - density, density], dim=-1)
    inside = (blocks.membership * links.mixed).sum(0) / 2
    owned = share * torch.stack([nonlinks, inside], dim=-1)
    return owned - share * owned.sum(-1, keepdim=True)


def nonlinks_inside(
    blocks: Blocks, delta: float, pairs: Tensor, weight: Tensor
) -> Tensor:
    """Σ c_ab π_ak π_bk / Q_ab over non-links with weights c_ab, ``[blocks]``."""
    membership = blocks.membership
    both = membership.index_select(0, pairs[0]) * membership.index_select(0, pairs[1])
    probability = 1 - delta - both @ (blocks.density - delta)
    return (weight / probability.clamp(min=_LEAST_PROBABILITY)) @ both


@final
class BlockFit:
    """Finds blocks in a graph; the direction of its edges does not count.

    In each iteration some nodes meet all their links and those of their non-links that
    lie among as many random nodes, which are the same for all, so that a batch is one
    product of matrices. A graph that is no larger than a batch is taken as a whole. A
    gradient by θ samples a share of all non-links.
    """

    def __init__(
        self,
        graph: Topology,
        *,
        delta: float,
        batch_nodes: int = 500,
        nonlink_share: float = 0.01,
    ) -> None:
        edges, size = both_ways(graph.graph.edge_index), graph.num_nodes
        device = graph.pattern.device
        undirected = Topology.from_edges(edges, size, self_loops=False, device=device)
        self.links = undirected.pattern
        self.delta = delta
        self._size = size
        self._batch = min(batch_nodes, size)
        self._num_nonlinks = (size * (size - 1) - self.links.num_entries) // 2
        wanted = min(round(nonlink_share * self._num_nonlinks), _MOST_PAIRS)
        self._num_pairs = max(wanted, 1)
        rows, columns = self.links.rows.long(), self.links.columns.long()
        # In order, because they are stored by rows; the last one ends every search.
        last = rows.new_full((1,), size * size)
        self._link_keys = torch.cat([rows * size + columns, last])

    def restart(self, blocks: Blocks, probability: Tensor) -> Blocks:
        """Begin anew from class probabilities; only the sizes of φ and θ are kept.

        Each density is the share of linked pairs among those of one predicted class,
        and at least δ: a block without any link would never get one.
        """
        label = probability.argmax(-1)
        row, column = label[self.links.rows.long()], label[self.links.columns.long()]
        num_blocks = probability.shape[-1]
        inside = torch.where(row == column, row, num_blocks)
        num_links = inside.bincount(minlength=num_blocks + 1)[:num_blocks]
        size = label.bincount(minlength=num_blocks).to(probability.dtype)
        density = (num_links / (size**2 + 1)).clamp(min=self.delta)
        theta = torch.stack([1 - density, density], dim=-1)
        return Blocks(
            probability * blocks.phi.sum(-1, keepdim=True),
            theta * blocks.theta.sum(-1, keepdim=True),
        )

    @torch.no_grad()
    def climb(
        self,
        blocks: Blocks,
        *,
        iterations: int,
        noise: Noise,
        first: int = 0,
        scale: float = 1.0,
    ) -> Blocks:
        """Improve the parameters, by steps of φ (of one batch) and then of θ.

        The iterations t count from ``first``; a step size is 1 / √(1024 + t) / scale.
        """
        delta = self.delta
        for number in range(first, first + iterations):
            step = (_STEP_DELAY + number) ** -0.5 / scale / 2
            site = _FIRST_SITE + _SITES_PER_ITERATION * number
            rows, columns, weight = self.batch(noise, site, blocks.theta)
            links = at_links(blocks, delta, self.links)
            links = Meetings(*(sums.index_select(0, rows) for sums in links))
            nonlinks = at_nonlinks(blocks, delta, rows, columns, weight)
            climb = phi_climb(blocks, delta, rows, links, nonlinks)
            moved = climbed(blocks.phi.index_select(0, rows), climb, step)
            blocks = blocks._replace(phi=blocks.phi.index_copy(0, rows, moved))
            pairs, weight = self.pairs(noise, site + 2, blocks.theta)
            links = at_links(blocks, delta, self.links)
            inside = nonlinks_inside(blocks, delta, pairs, weight)
            climb = theta_climb(blocks, links, inside)
            blocks = blocks._replace(theta=climbed(blocks.theta, climb, step))
        return blocks

    def batch(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, ...]:
        """Draw non-links for a gradient by φ, at two sites.

        Returns nodes that move, nodes that they meet, and how many non-links of its row
        each pair stands for ``[rows, columns]``: 0 for links and loops.
        """
        rows = self._some_nodes(noise, site, like)
        columns = self._some_nodes(noise, site + 1, like)
        free = self._free(rows, columns, like)
        nonlinks = self._size - 1 - self.links.row_counts.index_select(0, rows)
        each = nonlinks / free.sum(-1).clamp(min=1)
        return rows, columns, free * each.unsqueeze(-1)

    def pairs(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Draw non-links for a gradient by θ, ``[2, pairs]``.

        Returns also how many non-links each stands for ``[pairs]``: 0 for links.
        """
        if self._batch == self._size:
            pairs = self._all_nonlinks
            return pairs, like.new_ones(pairs.shape[1])
        drawn = uniform((2, self._num_pairs), noise, site, like.double())
        # One from each of as many equal parts of all nodes: in order, which makes the
        # search for links several times as fast, and less noisy than without.
        parts = torch.arange(self._num_pairs, device=like.device)
        first = ((parts + drawn[0]) * (self._size / self._num_pairs)).long()
        first = first.clamp(max=self._size - 1)
        # From 1 to size - 1 further on, round the corner: never the node itself.
        second = (first + 1 + (drawn[1] * (self._size - 1)).long()) % self._size
        free = (~self._are_linked(first, second)).to(like.dtype)
        each = self._num_nonlinks / free.sum().clamp(min=1)
        return torch.stack([first, second]), free * each

    def _some_nodes(self, noise: Noise, site: int, like: Tensor) -> Tensor:
        """Draw the nodes of a batch, all different."""
        if self._batch == self._size:
            return torch.arange(self._size, device=like.device)
        # Double precision draws more bits, so that there are hardly any ties.
        drawn = uniform((self._size,), noise, site, like.double())
        return drawn.topk(self._batch).indices

    def _free(self, rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
        """1 where two nodes may be a non-link, 0 for links and loops."""
        height, width = len(rows), len(columns)
        # Links from or to other nodes end in a last row or column, which is cut off.
        row_place = rows.new_full((self._size,), height)
        row_place[rows] = torch.arange(height, device=rows.device)
        column_place = rows.new_full((self._size,), width)
        column_place[columns] = torch.arange(width, device=rows.device)
        free = like.new_ones(height + 1, width + 1)
        free[row_place[self.links.rows], column_place[self.links.columns]] = 0
        return free[:-1, :-1] * (rows.unsqueeze(-1) != columns)

    @cached_property
    def _all_nonlinks(self) -> Tensor:
        size, device = self._size, self.links.device
        pairs = torch.triu_indices(size, size, offset=1, device=device)
        return pairs[:, ~self._are_linked(*pairs)]

    def _are_linked(self, first: Tensor, second: Tensor) -> Tensor:
        wanted = first * self._size + second
        place = torch.searchsorted(self._link_keys, wanted)
        return self._link_keys[place] == wanted
