"""Weights trained for a number of steps on given nodes; nothing is selected."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar, final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.methods.prepare import NetworkChoices, PreparedGraph, make_problem
from gsebo.structure import Fixed
from gsebo.training import LoopSettings, NodeClassification, Patience, train_weights


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
        (progress,) = train_weights(
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


PredictionKind = Literal["both", "features", "none"]
"""Which predictions a structure compares at both ends of an edge: those from features
alone and the network's, the former, or none."""

Guess = TypeVar("Guess")


class Refitted(NamedTuple, Generic[Guess]):
    """Fresh networks on a learned structure.

    Attributes:
        guess: What features alone say, if the structure looks at it.
        first: Weights of the network whose predictions it looks at, if at any.
        weights: Of the network that predicts.
    """

    guess: Guess | None
    first: Tree | None
    weights: Tree


def refit(
    predictions: PredictionKind,
    train_guess: Callable[[], Guess],
    train: Callable[[Guess | None, Tree | None], Tree],
) -> Refitted[Guess]:
    """Train fresh networks on a learned structure that looks at predictions.

    First a network that knows features alone; then one on the graph as scored with
    that guess, whose predictions the structure looks at; then the one that predicts.

    Args:
        predictions: At which predictions the structure looks.
        train_guess: Trains the first of them.
        train: Trains a network on the graph as scored with a guess and with the
            weights of a network, if there are any.
    """
    guess = None if predictions == "none" else train_guess()
    first = train(guess, None) if predictions == "both" else None
    return Refitted(guess, first, train(guess, first))
