"""What is measured after a step, from one transfer of a handful of numbers."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo.bilevel import Tree
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Advance


@final
@dataclass(frozen=True)
class Evaluation:
    """Measurements after one step; ``broken`` names what is not finite."""

    train_loss: float
    val_loss: float
    train_accuracy: float
    val_accuracy: float
    changed_edges: int
    changed_strength: float
    broken: list[str]


@torch.no_grad()
def evaluate(
    problem: NodeClassification,
    stop_nodes: Tensor,
    taken: Advance,
    logits: Tensor,
    outer: Tree,
) -> Evaluation:
    """Measure one run.

    Args:
        problem: Says which nodes count and what their labels are.
        stop_nodes: Nodes that decide when to stop.
        taken: The step.
        logits: Scores of all nodes after the step.
        outer: The outer variables that the step was taken with.
    """
    stop_logits, stop_labels = logits[stop_nodes], problem.labels[stop_nodes]
    inner = problem.inner_nodes
    changed, strength = _changed_edges(problem, outer)
    numbers = [
        taken.train_loss,
        cross_entropy(stop_logits, stop_labels),
        _accuracy(logits[inner], problem.labels[inner]),
        _accuracy(stop_logits, stop_labels),
        changed,
        strength,
        _all_finite(logits),
        *(_all_finite(leaf) for leaf in taken.outer.values()),
    ]
    # One tensor, because every number that is fetched alone waits for the device.
    train_loss, val_loss, train, val, edges, ratio, scores, *leaves = torch.stack(
        [number.to(torch.float64) for number in numbers]
    ).tolist()
    finite = {
        f"the training loss ({train_loss})": math.isfinite(train_loss),
        f"the validation loss ({val_loss})": math.isfinite(val_loss),
        "a node's score": scores == 1,
        "the hypergradient": all(leaf == 1 for leaf in leaves),
    }
    broken = [what for what, holds in finite.items() if not holds]
    return Evaluation(train_loss, val_loss, train, val, int(edges), ratio, broken)


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of rows whose largest score is at the label."""
    return (logits.argmax(-1) == labels).float().mean()


def _all_finite(numbers: Tensor) -> Tensor:
    # A sum of zeros unless some number times zero is not zero: one pass, no mask.
    return (numbers * 0).sum() == 0


def _changed_edges(problem: NodeClassification, outer: Tree) -> tuple[Tensor, Tensor]:
    """How many edges differ from the start, and by which factor on average."""
    start = problem.initial_strengths[..., : problem.graph.num_edges]
    if not outer:
        return start.new_zeros(()), start.new_ones(())
    now = problem.strengths(outer)[..., : problem.graph.num_edges]
    moved = now != start
    count = moved.sum()
    ratios = torch.where(moved, now / start, 0).sum() / count
    edges = moved if moved.dim() == 1 else moved.any(dim=0)
    return edges.sum(), torch.where(count > 0, ratios, 1)
