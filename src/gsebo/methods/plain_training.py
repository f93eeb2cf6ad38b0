"""Weights trained for a number of steps on given nodes; nothing is selected."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.methods.prepare import NetworkChoices, PreparedGraph, make_problem
from gsebo.structure import Fixed
from gsebo.training import LoopSettings, NodeClassification, Patience, train_joint


@final
@dataclass(frozen=True)
class PlainTraining:
    """How fresh weights are trained on a graph that stays as it is, to the last epoch.

    Attributes:
        optimizer: Makes the steps.
        epochs: Their number.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        seed: Of the weights and of dropout.
    """

    optimizer: Optimizer
    epochs: int
    weight_decay: float
    seed: int

    def train(
        self,
        prepared: PreparedGraph,
        network: NetworkChoices,
        strengths: Tensor | None,
        nodes: Tensor,
    ) -> tuple[NodeClassification, Tree]:
        """Return the problem that was solved, and the weights.

        Args:
            prepared: The graph.
            network: Which network.
            strengths: Of the entries of the graph; vanilla when ``None``.
            nodes: Labelled nodes to train on.
        """
        problem = make_problem(
            prepared,
            network,
            Fixed(strengths),
            outer_nodes=nodes,
            weight_decay=self.weight_decay,
            seed=self.seed,
        ).with_nodes(nodes, nodes)
        settings = LoopSettings(
            max_steps=1, patience=Patience("last", 1), stop_nodes=nodes, fingerprint=""
        )
        (progress,) = train_joint(
            [problem],
            self.optimizer,
            steps_per_evaluation=self.epochs,
            max_training_steps=self.epochs,
            settings=[settings],
        )
        return problem, progress.best_weights


@torch.no_grad()
def probabilities(problem: NodeClassification, weights: Tree) -> Tensor:
    """Class probabilities on a fixed structure, ``[nodes, classes]``."""
    return problem.scores(weights, {}).softmax(-1)
