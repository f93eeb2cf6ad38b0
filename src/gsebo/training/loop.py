"""The one loop over steps: advance, evaluate, keep the best, stop in time.

Independent runs on all cores: each worker has its own, nobody waits for anybody.

Threads that share every kernel have to meet after each of them, thousands of times a
second, and where another process takes a core all wait for it. Workers that train
different runs meet once, at the end. They are threads, because the kernels do not hold
Python's lock.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.distributed.group import Alone, Group
from gsebo.errors import InvalidInput
from gsebo.metrics import metric_value
from gsebo.sparse.numba_compile import kernel_threads, thread_limit
from gsebo.training.checkpoint import Checkpoint
from gsebo.training.history import Advance, Patience, Progress, StepRecord, Watcher
from gsebo.training.problem import NodeClassification, Stack, stackable
from gsebo.training.turns import Losses, Source, Trainable


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
    val_score: float | None
    broken: list[str]


@torch.no_grad()
def evaluate(
    problem: Trainable,
    stop_nodes: Tensor,
    taken: Advance,
    logits: Tensor,
    group: Group | None = None,
    *,
    metric: str | None = None,
) -> list[Evaluation]:
    """Measure every run of a stack; everything has a leading axis of runs.

    A metric is measured where one selects that is not measured anyway. All processes
    of a group get what the first has measured: who rounds otherwise must not stop at
    another step.
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
        _scores(metric, stop_logits, stop_labels),
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
    val_score: float,
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
        val_score if math.isfinite(val_score) else None,
        [what for what, holds in finite.items() if not holds],
    )


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the nodes, one for each run."""
    own = logits.gather(-1, labels.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    return (logits.logsumexp(-1) - own).mean(-1)


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of the nodes whose largest score is at the label, one for each run."""
    return (logits.argmax(-1) == labels).float().mean(-1)


def _scores(metric: str | None, logits: Tensor, labels: Tensor) -> Tensor:
    """A metric over the nodes, one for each run; NaN where none is asked for."""
    if metric is None:
        return logits.new_full((len(logits),), math.nan)
    # In double precision, because rounding makes ties of probabilities near one.
    probability = logits.double().softmax(-1).cpu().numpy()
    own = labels.cpu().numpy()
    values = [metric_value(metric, own, run) for run in probability]
    return torch.tensor(values, dtype=torch.float64, device=logits.device)


def _all_finite(numbers: Tensor) -> Tensor:
    # A sum of zeros unless some number times zero is not zero: one pass, no mask.
    return (numbers * 0).reshape(len(numbers), -1).sum(-1) == 0


Item = TypeVar("Item")
Work = Callable[[list[Item], Callable[[], bool]], None]
"""Does what is to be done for some items, as long as nobody says to stop."""


def share_out(items: Sequence[Item], workers: int, work: Work[Item]) -> None:
    """Share ``items`` among workers who may ask whether to stop, and wait."""
    hands = [list(items[place::workers]) for place in range(min(workers, len(items)))]
    if len(hands) == 1:
        work(hands[0], lambda: False)
        return
    stop = Event()

    def one(hand: list[Item]) -> None:
        with kernel_threads(1):
            work(hand, stop.is_set)

    with ThreadPoolExecutor(len(hands)) as pool:
        # A thread begins without the settings of the one that started it.
        jobs = [pool.submit(copy_context().run, one, hand) for hand in hands]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            stop.set()
            raise


Result = TypeVar("Result")


def shared_out(
    items: Sequence[Item], workers: int, each: Callable[[Item], Result]
) -> list[Result]:
    """What comes of each of some items, which as many workers do."""
    found: dict[int, Result] = {}

    def work(numbers: list[int], is_stopped: Callable[[], bool]) -> None:
        for number in numbers:
            if not is_stopped():
                found[number] = each(items[number])

    share_out(range(len(items)), workers, work)
    return [found[number] for number in range(len(items))]


Problem = TypeVar("Problem", bound=Trainable)
Step = Callable[[Problem, Progress], Advance]
"""One step of training: what happens between two evaluations."""
LossesStep = Callable[[Losses, Progress], Advance]
"""The same for whatever has losses, one run or a stack of them."""


@dataclass(frozen=True)
class LoopSettings:
    """How a loop runs, whatever it trains.

    Attributes:
        max_steps: Number of evaluations at most.
        patience: When to stop.
        stop_nodes: Nodes that decide when to stop and what to keep.
        fingerprint: Of everything that a checkpoint has to agree in.
        checkpoint: Where to save, and what to go on from.
        watcher: Who is told of every step.
        group: The processes that take part.
        gives_up: Whether a history is hopeless, if anybody asks.
    """

    max_steps: int
    patience: Patience
    stop_nodes: Tensor
    fingerprint: str
    checkpoint: Checkpoint | None = None
    watcher: Watcher | None = None
    group: Group = field(default_factory=Alone)
    gives_up: Callable[[Sequence[StepRecord]], bool] | None = None


def run_loop(
    problems: Sequence[Problem],
    step: Step[Problem],
    starts: Sequence[Progress],
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Train until ``max_steps``, out of patience, or diverged; keep the best state."""
    runs = [_Run(*each) for each in zip(problems, starts, settings, strict=True)]
    for run in runs:
        _train_alone(run, step)
    return [run.progress for run in runs]


def run_stacked(
    problems: Sequence[Source],
    step: LossesStep,
    starts: Sequence[Progress],
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """The same, but what differs only in its seed is trained at once.

    There is one stack per core; each run stops on its own, with the result that it
    would have had alone.
    """
    if not stackable(problems):
        return run_loop(problems, step, starts, settings)
    runs = [_Run(*each) for each in zip(problems, starts, settings, strict=True)]
    device = problems[0].labels.device
    workers = thread_limit() if device.type == "cpu" else 1
    share_out(runs, workers, partial(_train_together, step))
    return [run.progress for run in runs]


def _train_alone(run: "_Run[Problem]", step: Step[Problem]) -> None:
    progress = run.progress
    while run.goes_on:
        taken = step(run.problem, progress)
        logits = run.problem.scores(taken.iterate.weights, taken.belongs)
        alone = taken._replace(
            outer=_with_axis(taken.outer),
            belongs=_with_axis(taken.belongs),
            train_loss=taken.train_loss.unsqueeze(0),
        )
        (found,) = evaluate(
            run.problem,
            run.stop_nodes,
            alone,
            logits.unsqueeze(0),
            run.group,
            metric=run.metric,
        )
        if run.absorb(found, taken.iterate.step, logits):
            progress.keep(taken)
        if not found.broken:
            progress.advance(taken)
            run.save(force=False)
    run.save(force=True)


def _train_together(
    step: LossesStep,
    runs: list["_Run[NodeClassification]"],
    is_stopped: Callable[[], bool],
) -> None:
    bound = runs
    stack = Stack([run.problem for run in bound])
    together = stack.join([run.progress for run in bound])
    while places := [place for place, run in enumerate(bound) if run.goes_on]:
        if is_stopped():
            return
        if 2 * len(places) <= len(bound):
            # Whoever has stopped is carried along until half of all have.
            bound = [bound[place] for place in places]
            stack = Stack([run.problem for run in bound])
            together = stack.select(together, places)
        taken = step(stack, together)
        logits = stack.scores(taken.iterate.weights, taken.belongs)
        first = bound[0]
        founds = evaluate(
            first.problem, first.stop_nodes, taken, logits, metric=first.metric
        )
        for place, (run, found) in enumerate(zip(bound, founds, strict=True)):
            if run.goes_on and run.absorb(found, taken.iterate.step, logits[place]):
                run.progress.best_weights = stack.take(taken.iterate.weights, place)
                run.progress.best_outer = stack.take(taken.belongs, place)
        together.advance(taken)


def _with_axis(tree: Tree) -> Tree:
    return {name: leaf.unsqueeze(0) for name, leaf in tree.items()}


class _Run(Generic[Problem]):
    """One run of the loop: where it stands and whether it goes on."""

    def __init__(
        self, problem: Problem, start: Progress, settings: LoopSettings
    ) -> None:
        self.problem = problem
        self.stop_nodes = settings.stop_nodes
        self.group = settings.group
        self.metric = settings.patience.metric
        self._settings = settings
        self.progress = self._resumed(start) or start
        self._diverged = False
        self._begun = time.perf_counter()
        history = self.progress.history
        self._earlier = history[-1].seconds if history else 0.0

    @property
    def goes_on(self) -> bool:
        settings, history = self._settings, self.progress.history
        over = settings.patience.is_over(len(history), self.progress.best)
        if settings.gives_up is not None:
            over = over or settings.gives_up(history)
        over = over or self._diverged or self.progress.stopped
        return not (over or len(history) >= settings.max_steps)

    def absorb(self, found: Evaluation, inner_steps: int, logits: Tensor) -> bool:
        """Write a step into the history; return whether it is the best so far."""
        progress, settings = self.progress, self._settings
        record = StepRecord(
            step=len(progress.history) + 1,
            inner_steps=inner_steps,
            train_loss=found.train_loss,
            val_loss=found.val_loss,
            train_accuracy=found.train_accuracy,
            val_accuracy=found.val_accuracy,
            changed_edges=found.changed_edges,
            changed_strength=found.changed_strength,
            seconds=self._earlier + time.perf_counter() - self._begun,
            val_score=found.val_score,
        )
        if found.broken:
            _warn_diverged(record.step, found.broken, progress.best)
            self._diverged = True
            return False
        progress.history.append(record)
        better = settings.patience.is_better(record, progress.best)
        if better:
            progress.best = record
        if settings.watcher is not None:
            # Nothing else that a function may happen to return ends a training.
            progress.stopped = settings.watcher(record, logits) is True
        if self.group.size > 1:
            # Who hears another watcher must not stop at another step.
            said = torch.tensor(float(progress.stopped), device=logits.device)
            progress.stopped = bool(self.group.from_first(said))
        return better

    def save(self, *, force: bool) -> None:
        """Save the state, where states are saved."""
        settings = self._settings
        if settings.checkpoint is not None:
            settings.checkpoint.save(
                self.progress, settings.fingerprint, force=force, group=self.group
            )

    def _resumed(self, start: Progress) -> Progress | None:
        settings = self._settings
        if settings.checkpoint is None:
            return None
        device = str(self.problem.labels.device)
        return settings.checkpoint.load(settings.fingerprint, device, start, self.group)


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
