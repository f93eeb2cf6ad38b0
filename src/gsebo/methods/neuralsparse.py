"""NeuralSparse: a few neighbours per node, chosen by a network on the features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Data

from gsebo.bilevel import Tree, make_optimizer
from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import require_count, require_flag, require_not_negative
from gsebo.sparse import Noise
from gsebo.sparse.subpattern import subpattern
from gsebo.structure import Propagation, Topology
from gsebo.structure.neural_sparsifier import (
    NeighbourScorer,
    gumbel_noise,
    sparsified,
    temperature_at,
)
from gsebo.training.joint_problem import JointProblem, Member
from gsebo.training.task import Task

_SITE = 1000
# No training step has this number, so that evaluation has noise of its own.
_EVALUATION = -1
_TEMPERATURE = "temperature"


@final
@dataclass(kw_only=True, eq=False, repr=False)
class NeuralSparse(EpochClassifier):
    """Each node keeps its k best neighbours (Zheng et al., ICML 2020).

    A network scores every edge by the features at its ends. Of the softmax of the
    scores over the neighbours of a node, with Gumbel noise and a temperature that falls
    while training, the k largest are the weights of the edges, the others are dropped.
    Scores and backbone are trained together on the training loss.

    Args:
        num_neighbours: k.
        scorer_channels: Width of the hidden layer of the scoring network.
        structure_lr: Learning rate of the scoring network.
        compat: Keep the Gumbel noise in predictions, as the public ports do by
            mistake. It is drawn once for the fit.
    """

    num_neighbours: int = 5
    scorer_channels: int = 32
    structure_lr: float = 0.001
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_count(
            num_neighbours=self.num_neighbours, scorer_channels=self.scorer_channels
        )
        require_not_negative(structure_lr=self.structure_lr)
        require_flag(compat=self.compat)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        def problem(task: Task, run: Run) -> NeuralSparseProblem:
            return NeuralSparseProblem(
                task,
                num_neighbours=self.num_neighbours,
                scorer_channels=self.scorer_channels,
                noisy_predictions=self.compat,
            )

        optimizer = make_optimizer(self.inner_optimizer, self.structure_lr)
        return self.train_jointly(data, runs, problem, structure_optimizer=optimizer)


@final
class NeuralSparseProblem(JointProblem):
    """Training loss on the chosen neighbours.

    The outer variables are the weights of the scoring network and the temperature of
    the last step, which predictions use too.

    Args:
        task: The network, the graph and the labels.
        num_neighbours: Neighbours that a node keeps at most.
        scorer_channels: Width of the hidden layer of the scoring network.
        noisy_predictions: Whether predictions have Gumbel noise too.
    """

    def __init__(
        self,
        task: Task,
        *,
        num_neighbours: int,
        scorer_channels: int,
        noisy_predictions: bool,
    ) -> None:
        super().__init__(task)
        self._num_neighbours = num_neighbours
        self._noisy_predictions = noisy_predictions
        self._edges = Topology.of(
            task.graph.graph, self_loops=False, device=task.device
        ).pattern
        with torch.random.fork_rng(devices=[]):
            # Not the seed itself, from which the backbone drew its weights.
            torch.manual_seed(Noise(task.seed, 0).keys(_SITE)[0])
            scorer = NeighbourScorer(task.features.shape[1], scorer_channels)
        self._scorer = scorer.to(task.device, task.dtype)

    def initial_outer(self) -> Tree:
        """The scoring network before training, and the first temperature."""
        named = self._scorer.named_parameters()
        scorer = {name: weight.detach().clone() for name, weight in named}
        start = torch.tensor([temperature_at(0)])
        return {**scorer, _TEMPERATURE: start.to(self.task.device, self.task.dtype)}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes on a random choice."""
        noise = Noise(self.task.seed, step)
        chosen = self.chosen(outer, temperature_at(step), noise)
        logits = self.task.logits(weights, *chosen, noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)

    def chosen(
        self, outer: Tree, temperature: Tensor | float, noise: Noise | None
    ) -> Propagation:
        """The chosen neighbours with their weights, normalised."""
        scorer = {name: leaf for name, leaf in outer.items() if name != _TEMPERATURE}
        scores: Tensor = functional_call(
            self._scorer, scorer, (self.task.features, self._edges)
        )
        gumbel = None
        if noise is not None:
            gumbel = gumbel_noise(scores.numel(), noise, _SITE, scores)
        kept, weights = sparsified(
            self._edges, scores, temperature, self._num_neighbours, gumbel
        )
        # A node does not compete with its neighbours: its loop always weighs one.
        loops = weights.new_ones(self.task.graph.num_loops)
        kept, weights = torch.cat([kept, loops.bool()]), torch.cat([weights, loops])
        # Others are taken out, not given a weight of 0: attention would still see them.
        part = subpattern(self.task.graph.pattern, kept)
        return Propagation(part, self.task.backbone.normalise(part, weights))

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The best neighbours, at the temperature of the last step."""
        noise = None
        if self._noisy_predictions:
            noise = Noise(self.task.seed, _EVALUATION)
        return [Member(self.chosen(outer, outer[_TEMPERATURE], noise))]

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Take the temperature of the step that was just made."""
        now = torch.full_like(outer[_TEMPERATURE], temperature_at(step - 1))
        return {**outer, _TEMPERATURE: now}
