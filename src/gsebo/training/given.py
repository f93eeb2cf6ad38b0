"""The graph as it was given, as the yardstick of what was learned.

A structure is learned from the labels that decide which step to keep, so a low loss on
them may mean that it has learned them by heart. The same training on the given graph
tells: it sees none of those labels. What was learned is given up for it where

- its best step is better on the nodes that decide, or
- it was ahead, step by step, most of the way: steps on the structure that each follow
  the derivative of the validation loss, and still trail a training without any, lead
  to nodes that were not looked at nowhere.

A yardstick that trails for as long as patience lasts has told what it can, and ends.
"""

from collections.abc import Sequence
from dataclasses import replace

from gsebo.bilevel import Optimizer
from gsebo.training.history import Progress, StepRecord
from gsebo.training.loop import LoopSettings
from gsebo.training.stopping import Patience
from gsebo.training.trainer import train_weights
from gsebo.training.turns import Source

_STAGE = "given"


def beside(learned: Progress, settings: LoopSettings) -> LoopSettings:
    """How the training on the given graph runs, once the other has ended.

    Args:
        learned: The training that learned a structure.
        settings: How that one ran.
    """
    longest = settings.patience.patience

    def hopeless(history: Sequence[StepRecord]) -> bool:
        trail = list(zip(history, learned.history, strict=False))[-longest:]
        return len(trail) == longest and not any(_ahead(*pair) for pair in trail)

    checkpoint = settings.checkpoint and settings.checkpoint.stage(_STAGE)
    return replace(settings, checkpoint=checkpoint, watcher=None, gives_up=hopeless)


def against_given(
    problems: Sequence[Source],
    optimizer: Optimizer,
    learned: Sequence[Progress],
    *,
    inner_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Train on the given graph as well; return the better of both for each run.

    Args:
        problems: The losses, of one run or of several that differ in their seed.
        optimizer: Makes the inner steps.
        learned: The trainings that learned a structure.
        inner_steps: Inner steps between two evaluations.
        settings: How those ran.
    """
    pairs = list(zip(learned, settings, strict=True))
    given = train_weights(
        [problem.as_given() for problem in problems],
        optimizer,
        steps_per_evaluation=inner_steps,
        max_training_steps=inner_steps * settings[0].max_steps,
        settings=[beside(*pair) for pair in pairs],
    )
    return [
        _in_place_of(plain, progress)
        if is_preferable(plain, progress, setting.patience)
        else progress
        for plain, (progress, setting) in zip(given, pairs, strict=True)
    ]


def _in_place_of(given: Progress, learned: Progress) -> Progress:
    """The given graph, in whatever held what was learned."""
    if learned.table is not None:
        learned.table.clear()
    return replace(given, table=learned.table)


def is_preferable(given: Progress, learned: Progress, patience: Patience) -> bool:
    """Whether the given graph does better than what was learned."""
    pairs = list(zip(given.history, learned.history, strict=False))
    if 2 * sum(_ahead(*pair) for pair in pairs) > len(pairs):
        return True
    if given.best is None or learned.best is None:
        return learned.best is None
    if patience.select_by == "last":
        return given.best.val_loss < learned.best.val_loss
    return patience.is_better(given.best, learned.best)


def _ahead(given: StepRecord, learned: StepRecord) -> bool:
    return given.val_loss < learned.val_loss
