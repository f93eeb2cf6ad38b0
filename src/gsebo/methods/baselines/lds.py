"""LDS: a distribution over graphs, learned by the hypergradient of validation loss.

It trains in episodes: each begins with fresh weights, the structure goes on.

repeat until early stopping:                          (one episode)
    W ← fresh weights
    repeat while the training loss falls:
        W ← τ inner steps on L(W, Z)
        P ← d F(W_τ(Z), Z) / dZ                       (through these τ steps only)
        Z ← project(Z - η_o P)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo.bilevel import Reverse, Tree, begin, make_optimizer, scheduled, sgd
from gsebo.files import Count
from gsebo.graph import Graph, Propagation
from gsebo.methods.base import GraphClassifier
from gsebo.methods.baselines.pairs import PairMatrix, require_dense_memory
from gsebo.methods.baselines.shared import BaselineProblem, both_ways
from gsebo.methods.fitting import (
    Outcome,
    PreparedGraph,
    StopOn,
    joint_outcome_of,
    loop_settings,
    make_task,
    outer_and_stopping_nodes,
)
from gsebo.methods.parameters import Rate, Samples, Steps
from gsebo.methods.run import Run, threads_for
from gsebo.sparse import Noise, uniform
from gsebo.structure.candidates import nearest_neighbors
from gsebo.training import Member, Task
from gsebo.training.history import Advance, Progress, SelectBy
from gsebo.training.loop import run_loop

# A training loss that is not smaller by this share has not fallen.
_FALL = 1e-3
_PROBABILITY = "probability"
# Places that draw: graphs of inner steps, of outer losses, of predictions; weights.
_INNER, _OUTER, _PREDICTED, _WEIGHTS = 1000, 1001, 1002, 1003
# n x n matrices alive at once: those of a hypergradient, measured, and of each run.
_MATRICES, _MATRICES_PER_RUN = 31, 3


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LDS(GraphClassifier):
    """Learning discrete structures (Franceschi et al., ICML 2019).

    Each pair of nodes is linked with a probability of its own. An inner step trains the
    network on a graph that is drawn anew, and every ``inner_steps`` steps the
    validation loss is differentiated through them, straight through the draws, to move
    the probabilities, which are projected onto [0, 1]. The weights begin anew in each
    episode. Predictions are the mean over some drawn graphs. A directed graph is read
    as an undirected one.

    Args:
        inner_steps: Inner steps per outer step (τ).
        max_inner_steps: Inner steps of an episode at most.
        inner_patience: Outer steps in a row without a fall of the training loss by
            0.1 % that end an episode.
        outer_lr: Learning rate of the probabilities.
        outer_decay: After t outer steps that rate is divided by 1 + t ``outer_decay``.
        test_samples: Graphs that predictions are averaged over.
        prior: Probabilities start at the given ``"graph"`` or at the ``"knn"`` graph of
            the features, which leaves the given one out.
        num_neighbors: Neighbors of each node in the ``"knn"`` graph, by cosine.
        max_episodes: Number of episodes at most.
        patience: Episodes without a better one before stopping.
        stop_on: ``"holdout"``: a random half of the validation nodes serves the outer
            loss, the other decides when to stop; ``"val"``: all serve both.
        select_by: Keep the episode with the best validation ``"loss"``, ``"accuracy"``
            or other metric, such as ``"roc_auc"``, or the ``"last"``.
    """

    uses_edge_weight: ClassVar[bool] = False
    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    inner_steps: Steps = 5
    max_inner_steps: Steps = 400
    inner_patience: Count = 20
    inner_lr: Rate = 0.02
    outer_lr: Rate = 1.0
    outer_decay: Rate = 1e-3
    test_samples: Samples = 16
    prior: Literal["graph", "knn"] = "graph"
    num_neighbors: Count = 10
    max_episodes: Steps = 100
    patience: Count = 20
    stop_on: StopOn = "holdout"
    select_by: SelectBy = "accuracy"

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        matrices = _MATRICES + _MATRICES_PER_RUN * len(runs)
        require_dense_memory(
            "lds", matrices, data.num_nodes, prepared.dtype, prepared.device
        )
        decay = self.weight_decay
        task_of = partial(make_task, prepared, self.network(), weight_decay=decay)
        problems, settings = [], []
        for run in runs:
            outer, stop = outer_and_stopping_nodes(data, self.stop_on, run.seed)
            task, outer = task_of(seed=run.seed), outer.to(run.device)
            problems.append(LDSProblem(task, self, task_of, outer))
            settings.append(
                loop_settings(
                    run,
                    stop,
                    max_steps=self.max_episodes,
                    patience=self.patience,
                    select_by=self.select_by,
                )
            )
        episodes = _Episodes(self)
        with threads_for(data.num_nodes**2 * self.hidden_channels):
            starts = [episodes.start(problem) for problem in problems]
            progresses = run_loop(problems, episodes.run, starts, settings)
        pairs = zip(problems, progresses, strict=True)
        return [joint_outcome_of(prepared, *pair) for pair in pairs]


@final
class _Episodes:
    """Trains one episode after another, each a step of the loop.

    In each the inner optimiser begins anew, while the outer one goes on.
    """

    def __init__(self, method: LDS) -> None:
        self._method = method
        self._hypergradient = Reverse()
        self._inner = make_optimizer(method.inner_optimizer, method.inner_lr)
        self._outer = scheduled(
            sgd(method.outer_lr), lambda count: 1 / (1 + method.outer_decay * count)
        )

    def start(self, problem: "LDSProblem") -> Progress:
        outer = problem.initial_outer()
        iterate = begin(self._inner, problem.initial_weights())
        return Progress(iterate, outer, self._outer.init(outer))

    def run(self, problem: "LDSProblem", progress: Progress) -> Advance:
        weights = problem.fresh_weights(len(progress.history))
        start = begin(self._inner, weights, step=progress.iterate.step)
        outer, state = progress.outer, progress.outer_state
        taken = Advance(start, outer, state, torch.empty(0), outer)
        end = start.step + self._method.max_inner_steps
        lowest, since = float("inf"), 0
        while taken.iterate.step < end and since < self._method.inner_patience:
            steps = min(self._method.inner_steps, end - taken.iterate.step)
            chunk = _Chunk(problem, taken.iterate.step + steps)
            found = self._hypergradient.run(
                chunk, self._inner, taken.iterate, taken.outer, steps
            )
            gradient, iterate = found.gradient, found.iterate
            moved, state = self._outer.update(gradient, taken.outer_state, taken.outer)
            outer = problem.settle(iterate.weights, moved, iterate.step)
            mean = torch.stack(found.inner_losses).mean()
            taken = Advance(iterate, outer, state, mean, taken.outer)
            loss = float(mean)
            fell = loss < lowest * (1 - _FALL)
            lowest, since = (loss, 0) if fell else (lowest, since + 1)
        return taken


class _Chunk(NamedTuple):
    """The bilevel problem of some inner steps, the last of which is known."""

    problem: "LDSProblem"
    end: int

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.problem.loss(weights, outer, step)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return self.problem.outer_loss(weights, outer, self.end)


@final
class BernoulliEdges:
    """Random graphs whose edges are there independently of each other.

    Probabilities are ``[pairs]``, one for each pair of nodes, in the order of
    :class:`PairMatrix`.
    """

    def __init__(self, num_nodes: int, device: torch.device | str) -> None:
        self._pairs = PairMatrix(num_nodes, device)

    def certain(self, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
        """Probability 1 for every pair that an edge ``[2, edges]`` joins, 0 else."""
        return self._pairs.joined(edge_index).to(dtype)

    def sample(self, probabilities: Tensor, noise: Noise, site: int) -> Tensor:
        """Draw a symmetric matrix of 0 and 1, self-loops all there, ``[nodes, nodes]``.

        Its derivative is straight-through, as if the draw were the probability itself:
        that of a pair is the sum of those of its two entries.
        """
        drawn = _drawn(probabilities, noise, site).to(probabilities.dtype)
        # The difference is exactly 0 and only carries the derivative.
        straight = drawn + (probabilities - probabilities.detach())
        return self._pairs.symmetric(straight, diagonal=1.0)

    def sample_edges(self, probabilities: Tensor, noise: Noise, site: int) -> Tensor:
        """Draw the same graph as its edges in both directions, ``[2, edges]``."""
        pair = _drawn(probabilities, noise, site).nonzero().squeeze(-1)
        # Before row i of the triangle there are i (i - 1) / 2 pairs.
        larger = ((1 + (8 * pair + 1).double().sqrt()) / 2).long()
        smaller = pair - larger * (larger - 1) // 2
        return both_ways(torch.stack([larger, smaller]))


@torch.no_grad()
def _drawn(probabilities: Tensor, noise: Noise, site: int) -> Tensor:
    drawn = probabilities >= 1
    # What is certain needs no draw: at first that is everything, and later most.
    undecided = ((probabilities > 0) & ~drawn).nonzero().squeeze(-1)
    chances = probabilities[undecided]
    drawn[undecided] = uniform(tuple(chances.shape), noise, site, chances) < chances
    return drawn


@final
class LDSProblem(BaselineProblem[LDS]):
    """Losses on drawn graphs, as functions of the weights and of the probabilities."""

    def __init__(
        self, task: Task, method: LDS, task_of: Callable[..., Task], outer_nodes: Tensor
    ) -> None:
        super().__init__(task, method)
        self._task_of, self._outer_nodes = task_of, outer_nodes
        self._graphs = BernoulliEdges(task.num_nodes, task.device)

    def initial_outer(self) -> Tree:
        """Certainty about the edges of the prior, and that there are no others."""
        edges = self.task.graph.graph.edge_index
        if self.method.prior == "knn":
            edges = nearest_neighbors(self.task.features, self.method.num_neighbors)
        return {_PROBABILITY: self._graphs.certain(edges, self.task.dtype)}

    def fresh_weights(self, episode: int) -> Tree:
        """Weights that an episode begins with."""
        high, low = Noise(self.task.seed, episode).keys(_WEIGHTS)
        return self._task_of(seed=(high << 31) + low).initial_weights()

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        noise = Noise(self.task.seed, step)
        return self.loss_on(self._drawn(outer, noise, _INNER), weights, noise)

    def outer_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the outer nodes on a drawn graph, without dropout."""
        graph = self._drawn(outer, Noise(self.task.seed, step), _OUTER)
        logits = self.task.logits(weights, *graph, None)
        nodes = self._outer_nodes
        return cross_entropy(logits.index_select(0, nodes), self.labels[nodes])

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        return {_PROBABILITY: outer[_PROBABILITY].clamp(0, 1)}

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        """Graphs that are drawn once, whatever the step; they are sparse."""
        members = []
        for number in range(self.method.test_samples):
            noise = Noise(self.task.seed, number)
            edges = self._graphs.sample_edges(outer[_PROBABILITY], noise, _PREDICTED)
            members.append(Member(self.unweighted(edges)))
        return members

    def _drawn(self, outer: Tree, noise: Noise, site: int) -> Propagation:
        """A graph with self-loops in its vanilla propagation, differentiable."""
        return self.weighted_pairs(
            self._graphs.sample(outer[_PROBABILITY], noise, site)
        )
