"""DropEdge: every training step sees another random part of the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import require_flag, require_share
from gsebo.sparse import Noise
from gsebo.sparse.subpattern import subpattern
from gsebo.structure import Propagation
from gsebo.structure.edge_drop import EdgeDrop
from gsebo.training.joint_problem import JointProblem, Member
from gsebo.training.task import Task

_SITE = 1000


@final
@dataclass(kw_only=True, eq=False, repr=False)
class DropEdge(EpochClassifier):
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

    drop_rate: float = 0.1
    directed: bool = False
    per_layer: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_share(drop_rate=self.drop_rate)
        require_flag(directed=self.directed, per_layer=self.per_layer)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        def problem(task: Task, run: Run) -> DropEdgeProblem:
            drop = EdgeDrop(task.graph, self.drop_rate, directed=self.directed)
            return DropEdgeProblem(task, drop, per_layer=self.per_layer)

        return self.train_jointly(data, runs, problem)


@final
class DropEdgeProblem(JointProblem):
    """Training loss on a random part of the graph; predictions on all of it.

    Args:
        task: The network, the graph and the labels.
        drop: Draws the part.
        per_layer: Whether it is drawn for each layer.
    """

    learned = False

    def __init__(self, task: Task, drop: EdgeDrop, *, per_layer: bool) -> None:
        super().__init__(task)
        self._drop = drop
        self._per_layer = per_layer
        if per_layer and not self._a_weight_of_zero_removes():
            raise InvalidInput(
                f"per_layer=True given with {type(task.backbone).__name__}, where an "
                "edge of weight 0 still counts; expected per_layer=False, or for a GAT "
                "backbone_options={'renormalise': True}."
            )

    def initial_outer(self) -> Tree:
        """Nothing is learned but the weights."""
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes on what is left of the graph."""
        noise = Noise(self.task.seed, step)
        logits = self.task.logits(weights, *self.left_over(noise), noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)

    @torch.no_grad()
    def left_over(self, noise: Noise) -> Propagation:
        """The graph of one training step, in its vanilla propagation."""
        if not self._per_layer:
            return self._removed(self._drop.kept_entries(noise, _SITE))
        layers = range(self.task.backbone.num_propagations)
        kept = [self._drop.kept_entries(noise, _SITE + layer) for layer in layers]
        return self._weighed(torch.stack(kept))

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The whole graph."""
        whole = Propagation(self.task.graph.pattern, self.initial_strengths)
        return [Member(whole)]

    def _removed(self, kept: Tensor) -> Propagation:
        """Take the other entries out of the graph: right for every network."""
        part = subpattern(self.task.graph.pattern, kept)
        return Propagation(part, self.task.backbone.initial_strength(part))

    def _weighed(self, kept: Tensor) -> Propagation:
        """Give them a weight of 0: layers share a pattern, but each has weights."""
        pattern = self.task.graph.pattern
        weights = kept.to(self.task.dtype)
        return Propagation(pattern, self.task.backbone.normalise(pattern, weights))

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
