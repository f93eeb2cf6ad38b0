"""The one loop over steps: advance, evaluate, keep the best, stop in time."""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo.bilevel import Iterate, State, Tree
from gsebo.errors import InvalidInput
from gsebo.training.checkpoint import Checkpoint
from gsebo.training.history import StepRecord, Watcher
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Progress
from gsebo.training.stopping import Patience


class Advance(NamedTuple):
    """What one step of training changes.

    The weights belong to the structure from before the step: ``outer`` is only used
    from the next step on.
    """

    iterate: Iterate
    outer: Tree
    outer_state: State
    train_loss: Tensor


StepFunction = Callable[[Progress], Advance]


@dataclass(frozen=True)
class LoopSettings:
    """How a loop runs, whatever it trains.

    Attributes:
        max_steps: Number of steps at most.
        patience: When to stop earlier and which step to keep.
        stop_nodes: Labelled nodes that decide it.
        fingerprint: Of the whole fit, to match checkpoints.
        checkpoint: Where to save progress, if anywhere.
        watcher: Told about every step, if anybody.
    """

    max_steps: int
    patience: Patience
    stop_nodes: Tensor
    fingerprint: str
    checkpoint: Checkpoint | None = None
    watcher: Watcher | None = None


def run_loop(
    problem: NodeClassification,
    advance: StepFunction,
    start: Progress,
    settings: LoopSettings,
) -> Progress:
    """Train until ``max_steps``, out of patience, or diverged; keep the best state."""
    progress = _resumed(settings, problem) or start
    begun = time.perf_counter()
    earlier = progress.history[-1].seconds if progress.history else 0.0
    patience = settings.patience
    while len(progress.history) < settings.max_steps:
        if patience.is_over(len(progress.history), progress.best):
            break
        taken = advance(progress)
        logits = _evaluate(problem, taken.iterate.weights, progress.outer)
        record = _record(
            problem,
            settings.stop_nodes,
            progress,
            taken,
            logits,
            seconds=earlier + time.perf_counter() - begun,
        )
        broken = _not_finite(record, taken, logits)
        if broken:
            _warn_diverged(record.step, broken, progress.best)
            break
        progress.history.append(record)
        if patience.is_better(record, progress.best):
            progress.best = record
            progress.best_weights = taken.iterate.weights
            progress.best_outer = progress.outer
        progress.iterate, progress.outer = taken.iterate, taken.outer
        progress.outer_state = taken.outer_state
        if settings.watcher is not None:
            settings.watcher(record, logits)
        if settings.checkpoint is not None:
            settings.checkpoint.save(progress, settings.fingerprint, force=False)
    if settings.checkpoint is not None:
        settings.checkpoint.save(progress, settings.fingerprint, force=True)
    return progress


def _resumed(settings: LoopSettings, problem: NodeClassification) -> Progress | None:
    if settings.checkpoint is None:
        return None
    settings.checkpoint.prepare()
    return settings.checkpoint.load(settings.fingerprint, str(problem.labels.device))


@torch.no_grad()
def _evaluate(problem: NodeClassification, weights: Tree, outer: Tree) -> Tensor:
    return problem.logits(weights, outer, None)


def _record(
    problem: NodeClassification,
    stop_nodes: Tensor,
    progress: Progress,
    taken: Advance,
    logits: Tensor,
    *,
    seconds: float,
) -> StepRecord:
    labels = problem.labels
    stop_logits, stop_labels = logits[stop_nodes], labels[stop_nodes]
    inner = problem.inner_nodes
    changed, strength = _changed_edges(problem, progress.outer)
    return StepRecord(
        step=len(progress.history) + 1,
        inner_steps=taken.iterate.step,
        train_loss=float(taken.train_loss),
        val_loss=float(cross_entropy(stop_logits, stop_labels)),
        train_accuracy=accuracy(logits[inner], labels[inner]),
        val_accuracy=accuracy(stop_logits, stop_labels),
        changed_edges=changed,
        changed_strength=strength,
        seconds=seconds,
    )


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of rows whose largest score is at the label."""
    return float((logits.argmax(-1) == labels).float().mean())


@torch.no_grad()
def _changed_edges(problem: NodeClassification, outer: Tree) -> tuple[int, float]:
    if not outer:
        return 0, 1.0
    edges = slice(0, problem.graph.num_edges)
    start = problem.strengths(problem.initial_outer())[..., edges]
    now = problem.strengths(outer)[..., edges]
    moved = now != start
    if not bool(moved.any()):
        return 0, 1.0
    number = int((moved if moved.dim() == 1 else moved.any(dim=0)).sum())
    return number, float((now[moved] / start[moved]).mean())


def _not_finite(record: StepRecord, taken: Advance, logits: Tensor) -> list[str]:
    """Name what has become NaN or infinite."""
    finite = {
        f"the training loss ({record.train_loss})": math.isfinite(record.train_loss),
        f"the validation loss ({record.val_loss})": math.isfinite(record.val_loss),
        "a node's score": bool(torch.isfinite(logits).all()),
        "the hypergradient": all(
            bool(torch.isfinite(leaf).all()) for leaf in taken.outer.values()
        ),
    }
    return [what for what, holds in finite.items() if not holds]


def _warn_diverged(step: int, broken: list[str], best: StepRecord | None) -> None:
    what = f"training diverged at step {step}: {', '.join(broken)} is not finite"
    if best is None:
        raise InvalidInput(
            f"{what}, before any usable step; expected smaller learning rates or "
            "smaller features"
        )
    warnings.warn(
        f"{what}; the state of step {best.step} is returned. Smaller learning rates "
        "may help.",
        RuntimeWarning,
        stacklevel=2,
    )
