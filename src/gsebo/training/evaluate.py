"""What is measured after a step, from one transfer of a handful of numbers."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.training.distributed.group import Group
from gsebo.training.progress import Advance
from gsebo.training.trainable import Trainable


@final
@dataclass(frozen=True)
class Evaluation:
    """Measurements after one step; ``broken`` names what is not finite."""

    train_loss: float
    val_loss: float
    train_accuracy: float
    val_accuracy: float
    changed_edges: int | None
    changed_strength: float | None
    broken: list[str]


@torch.no_grad()
def evaluate(
    problem: Trainable,
    stop_nodes: Tensor,
    taken: Advance,
    logits: Tensor,
    group: Group | None = None,
) -> list[Evaluation]:
    """Measure every run of a stack; everything has a leading axis of runs.

    Args:
        problem: Says which nodes count and what their labels are.
        stop_nodes: Nodes that decide when to stop.
        taken: The step.
        logits: Scores of all nodes after the step, ``[runs, nodes, classes]``.
        group: Who trains together. All get what the first process has measured: who
            rounds otherwise must not stop at another step.
    """
    inner = problem.inner_nodes
    stop_logits, stop_labels = logits[:, stop_nodes], problem.labels[stop_nodes]
    changed, strength = problem.changed_edges(taken.belongs, len(logits))
    numbers = [
        taken.train_loss,
        _cross_entropy(stop_logits, stop_labels),
        _accuracy(logits[:, inner], problem.labels[inner]),
        _accuracy(stop_logits, stop_labels),
        changed,
        strength,
        _all_finite(logits),
        *(_all_finite(leaf) for leaf in taken.outer.values()),
    ]
    # One tensor, because every number that is fetched alone waits for the device.
    table = torch.stack([number.to(torch.float64) for number in numbers], dim=-1)
    if group is not None:
        table = group.from_first(table)
    return [_evaluation(*row) for row in table.tolist()]


def _evaluation(
    train_loss: float,
    val_loss: float,
    train_accuracy: float,
    val_accuracy: float,
    changed_edges: float,
    changed_strength: float,
    scores: float,
    *leaves: float,
) -> Evaluation:
    finite = {
        f"the training loss ({train_loss})": math.isfinite(train_loss),
        f"the validation loss ({val_loss})": math.isfinite(val_loss),
        "a node's score": scores == 1,
        "the structure": all(leaf == 1 for leaf in leaves),
    }
    return Evaluation(
        train_loss,
        val_loss,
        train_accuracy,
        val_accuracy,
        None if math.isnan(changed_edges) else int(changed_edges),
        changed_strength if math.isfinite(changed_strength) else None,
        [what for what, holds in finite.items() if not holds],
    )


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the nodes, one for each run."""
    own = logits.gather(-1, labels.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    return (logits.logsumexp(-1) - own).mean(-1)


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of the nodes whose largest score is at the label, one for each run."""
    return (logits.argmax(-1) == labels).float().mean(-1)


def _all_finite(numbers: Tensor) -> Tensor:
    # A sum of zeros unless some number times zero is not zero: one pass, no mask.
    return (numbers * 0).reshape(len(numbers), -1).sum(-1) == 0
