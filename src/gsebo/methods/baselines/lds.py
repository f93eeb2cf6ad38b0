"""LDS: a distribution over graphs, learned by the hypergradient of validation loss.

Bilevel training in episodes: each begins with fresh weights, the structure goes on.

repeat until early stopping:                          (one episode)
    W ← fresh weights
    repeat while the training loss falls:
        W ← τ inner steps on L(W, Z)
        P ← d F(W_τ(Z), Z) / dZ                       (through these τ steps only)
        Z ← project(Z - η_o P)
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo.bilevel import (
    Hypergradient,
    Optimizer,
    Reverse,
    Tree,
    begin,
    make_optimizer,
    scheduled,
    sgd,
)
from gsebo.graph import Propagation, Topology
from gsebo.graph.graph import Graph
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.baselines.pairs import PairMatrix, require_dense_memory
from gsebo.methods.outcome import Outcome, joint_outcome_of
from gsebo.methods.parameters import Rate, Samples, Steps
from gsebo.methods.prepare import PreparedGraph, make_task
from gsebo.methods.schedule import StopOn, loop_settings, outer_and_stopping_nodes
from gsebo.schema import Count
from gsebo.sparse import CompletePattern, Noise, uniform
from gsebo.structure.candidates import nearest_neighbours
from gsebo.training import Member, Task
from gsebo.training.history import Advance, Progress, SelectBy
from gsebo.training.joint import JointProblem
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.threads import threads_for


@final
class BernoulliEdges:
    """Random graphs whose edges are there independently of each other.

    Probabilities are ``[pairs]``, one for each pair of nodes, in the order of
    :class:`PairMatrix`.

    Args:
        num_nodes: Number of nodes.
        device: Where probabilities live.
    """

    def __init__(self, num_nodes: int, device: torch.device | str) -> None:
        self._pairs = PairMatrix(num_nodes, device)

    def certain(self, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
        """Probability 1 for every pair that an edge ``[2, edges]`` joins, 0 else."""
        return self._pairs.joined(edge_index).to(dtype)

    def project(self, probabilities: Tensor) -> Tensor:
        """The nearest numbers in [0, 1]."""
        return probabilities.clamp(0, 1)

    def sample(self, probabilities: Tensor, noise: Noise, site: int) -> Tensor:
        """Draw a symmetric matrix of 0 and 1, self-loops all there, ``[nodes, nodes]``.

        Its derivative is straight-through, as if the draw were the probability itself:
        that of a pair is the sum of those of its two entries.

        Args:
            probabilities: One for each pair.
            noise: Seed and step of the draw.
            site: Number of the place that draws.
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
        edges = torch.stack([larger, smaller])
        return torch.cat([edges, edges.flip(0)], dim=1)


@torch.no_grad()
def _drawn(probabilities: Tensor, noise: Noise, site: int) -> Tensor:
    drawn = probabilities >= 1
    # What is certain needs no draw: at first that is everything, and later most.
    undecided = ((probabilities > 0) & ~drawn).nonzero().squeeze(-1)
    chances = probabilities[undecided]
    drawn[undecided] = uniform(tuple(chances.shape), noise, site, chances) < chances
    return drawn


# A training loss that is not smaller by this share has not fallen.
_FALL = 1e-3


class EpisodeProblem(JointProblem):
    """Two losses and where an episode begins; ``loss`` is the inner one.

    After every outer step ``settle`` projects the outer variables.
    """

    @abstractmethod
    def outer_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Return the loss that the structure is learned by.

        Args:
            weights: Of the network.
            outer: Of the structure.
            step: Number of inner steps before it; everything random is a function of
                it.
        """

    @abstractmethod
    def fresh_weights(self, episode: int) -> Tree:
        """Weights that an episode begins with, from number 0 on."""


@final
@dataclass(frozen=True)
class EpisodeSettings:
    """How long an episode lasts.

    Attributes:
        inner_steps: τ, inner steps for one outer step.
        max_inner_steps: Inner steps of an episode at most.
        inner_patience: An episode ends after so many outer steps in a row at which the
            training loss, the mean of the inner steps in between, has not fallen.
    """

    inner_steps: int
    max_inner_steps: int
    inner_patience: int


def train_episodes(
    problems: Sequence[EpisodeProblem],
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_optimizer: Optimizer,
    *,
    episode: EpisodeSettings,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Learn a structure from many trainings, one for each step of the loop.

    Args:
        problems: The losses, of one run or of several.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps, from a fresh state in each episode.
        outer_optimizer: Makes the outer steps; its state lives on across episodes.
        episode: How long one lasts.
        settings: When to stop, and what to keep; one for each run.
    """
    trainer = _Trainer(hypergradient, inner_optimizer, outer_optimizer, episode)
    starts = []
    for problem in problems:
        outer = problem.initial_outer()
        iterate = begin(inner_optimizer, problem.initial_weights())
        starts.append(Progress(iterate, outer, outer_optimizer.init(outer)))
    return run_loop(problems, trainer.episode, starts, settings)


@final
@dataclass(frozen=True)
class _Trainer:
    """Runs one episode after another."""

    hypergradient: Hypergradient
    inner: Optimizer
    outer: Optimizer
    settings: EpisodeSettings

    def episode(self, problem: EpisodeProblem, progress: Progress) -> Advance:
        weights = problem.fresh_weights(len(progress.history))
        start = begin(self.inner, weights, step=progress.iterate.step)
        outer, state = progress.outer, progress.outer_state
        taken = Advance(start, outer, state, torch.empty(0), outer)
        end = start.step + self.settings.max_inner_steps
        falling = _Falling(self.settings.inner_patience)
        while taken.iterate.step < end and falling.goes_on:
            steps = min(self.settings.inner_steps, end - taken.iterate.step)
            taken = self._outer_step(problem, taken, steps)
            falling.see(float(taken.train_loss))
        return taken

    def _outer_step(self, problem: EpisodeProblem, at: Advance, steps: int) -> Advance:
        chunk = _Chunk(problem, at.iterate.step + steps)
        found = self.hypergradient.run(chunk, self.inner, at.iterate, at.outer, steps)
        moved, state = self.outer.update(found.gradient, at.outer_state, at.outer)
        outer = problem.settle(found.iterate.weights, moved, found.iterate.step)
        loss = torch.stack(found.inner_losses).mean()
        return Advance(found.iterate, outer, state, loss, at.outer)


@final
@dataclass(frozen=True, eq=False)
class _Chunk:
    """The bilevel problem of some inner steps, the last of which is known."""

    problem: EpisodeProblem
    end: int

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.problem.loss(weights, outer, step)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return self.problem.outer_loss(weights, outer, self.end)


@final
class _Falling:
    """Says whether a loss still falls."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._lowest = float("inf")
        self._since = 0

    @property
    def goes_on(self) -> bool:
        return self._since < self._patience

    def see(self, loss: float) -> None:
        fell = loss < self._lowest * (1 - _FALL)
        self._lowest = loss if fell else self._lowest
        self._since = 0 if fell else self._since + 1


Prior = Literal["graph", "knn"]
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
        num_neighbours: Neighbours of each node in the ``"knn"`` graph, by cosine.
        max_episodes: Number of episodes at most.
        patience: Episodes without a better one before stopping.
        stop_on: ``"holdout"``: a random half of the validation nodes serves the outer
            loss, the other decides when to stop; ``"val"``: all serve both.
        select_by: Keep the episode with the best validation ``"loss"`` or
            ``"accuracy"``, or the ``"last"``.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    inner_steps: Steps = 5
    max_inner_steps: Steps = 400
    inner_patience: Count = 20
    inner_lr: Rate = 0.02
    outer_lr: Rate = 1.0
    outer_decay: Rate = 1e-3
    test_samples: Samples = 16
    prior: Prior = "graph"
    num_neighbours: Count = 10
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
        problems, settings = [], []
        for run in runs:
            outer, stop = outer_and_stopping_nodes(data, self.stop_on, run.seed)
            problems.append(self._problem(prepared, run, outer))
            settings.append(
                loop_settings(
                    run,
                    stop,
                    max_steps=self.max_episodes,
                    patience=self.patience,
                    select_by=self.select_by,
                )
            )
        with threads_for(data.num_nodes**2 * self.hidden_channels):
            progresses = train_episodes(
                problems,
                Reverse(),
                make_optimizer(self.inner_optimizer, self.inner_lr),
                self._outer_optimizer(),
                episode=EpisodeSettings(
                    self.inner_steps, self.max_inner_steps, self.inner_patience
                ),
                settings=settings,
            )
        pairs = zip(problems, progresses, strict=True)
        return [joint_outcome_of(prepared, *pair) for pair in pairs]

    def _outer_optimizer(self) -> Optimizer:
        return scheduled(
            sgd(self.outer_lr), lambda count: 1 / (1 + self.outer_decay * count)
        )

    def _problem(
        self, prepared: PreparedGraph, run: Run, outer_nodes: Tensor
    ) -> "LDSProblem":
        def task_of(seed: int) -> Task:
            return make_task(
                prepared, self.network(), weight_decay=self.weight_decay, seed=seed
            )

        def fresh_weights(episode: int) -> Tree:
            high, low = Noise(run.seed, episode).keys(_WEIGHTS)
            return task_of((high << 31) + low).initial_weights()

        task = task_of(run.seed)
        return LDSProblem(
            task,
            fresh_weights,
            self._prior_edges(task),
            outer_nodes=outer_nodes.to(run.device),
            test_samples=self.test_samples,
        )

    def _prior_edges(self, task: Task) -> Tensor:
        if self.prior == "graph":
            return task.graph.graph.edge_index
        return nearest_neighbours(task.features, self.num_neighbours)


@final
class LDSProblem(EpisodeProblem):
    """Losses on drawn graphs, as functions of the weights and of the probabilities.

    Args:
        task: The network, the graph and the labels.
        fresh_weights: From the number of an episode to the weights it begins with.
        edges: Edges that are certain at first, ``[2, edges]``; all others never are.
        outer_nodes: Nodes of the outer loss.
        test_samples: Graphs that predictions are averaged over.
    """

    def __init__(
        self,
        task: Task,
        fresh_weights: Callable[[int], Tree],
        edges: Tensor,
        *,
        outer_nodes: Tensor,
        test_samples: int,
    ) -> None:
        super().__init__(task)
        self._fresh_weights = fresh_weights
        self._edges = edges
        self._outer_nodes = outer_nodes
        self._test_samples = test_samples
        self._graphs = BernoulliEdges(task.num_nodes, task.device)
        self._pattern = CompletePattern(task.num_nodes, task.device)

    def initial_outer(self) -> Tree:
        """Certainty about the edges that are given."""
        return {_PROBABILITY: self._graphs.certain(self._edges, self.task.dtype)}

    def fresh_weights(self, episode: int) -> Tree:
        """Weights that an episode begins with."""
        return self._fresh_weights(episode)

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes on a drawn graph."""
        noise = Noise(self.task.seed, step)
        graph = self._drawn(outer, noise, _INNER)
        logits = self.task.logits(weights, *graph, noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)

    def outer_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the outer nodes on a drawn graph, without dropout."""
        graph = self._drawn(outer, Noise(self.task.seed, step), _OUTER)
        logits = self.task.logits(weights, *graph, None)
        nodes = self._outer_nodes
        return cross_entropy(logits.index_select(0, nodes), self.labels[nodes])

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Probabilities lie in [0, 1]."""
        return {_PROBABILITY: self._graphs.project(outer[_PROBABILITY])}

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """Graphs that are drawn once, whatever the step; they are sparse."""
        return [self._member(outer, number) for number in range(self._test_samples)]

    def _member(self, outer: Tree, number: int) -> Member:
        task, noise = self.task, Noise(self.task.seed, number)
        edges = self._graphs.sample_edges(outer[_PROBABILITY], noise, _PREDICTED)
        pattern = Topology.from_edges(
            edges, task.num_nodes, self_loops=True, device=task.device
        ).pattern
        return Member(Propagation(pattern, task.backbone.initial_strength(pattern)))

    def _drawn(self, outer: Tree, noise: Noise, site: int) -> Propagation:
        """A graph with self-loops in its vanilla propagation, differentiable."""
        entries = self._pattern.values(
            self._graphs.sample(outer[_PROBABILITY], noise, site)
        )
        return Propagation(
            self._pattern, self.task.backbone.normalise(self._pattern, entries)
        )
