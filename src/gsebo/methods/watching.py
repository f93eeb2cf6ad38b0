"""Who is told of the steps of a fit, and may end it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.metrics import METRICS
from gsebo.training import StepRecord, Watcher
from gsebo.training.progress_bar import display


def expected_steps(parameters: dict[str, Any]) -> int | None:
    """Number of records that a fit writes if it does not stop early, where known."""
    if "max_outer_steps" in parameters:
        # Where networks take turns, a record is made when each of them has moved.
        turns = parameters["num_folds"] if parameters.get("label_use") == "folds" else 1
        return int(-(-parameters["max_outer_steps"] // turns))
    if "max_epochs" in parameters:
        every = parameters.get("evaluate_every", 1)
        return int(-(-parameters["max_epochs"] // every))
    return None


def step_in_words(record: StepRecord, parameters: dict[str, Any]) -> str:
    """How a step did on validation nodes, by what selects among it."""
    words = f"val loss {record.val_loss:.3f}  accuracy {record.val_accuracy:.1%}"
    metric = METRICS.get(parameters.get("select_by", ""))
    if record.val_score is None or metric is None:
        return words
    return f"{words}  {metric.title} {metric.written(record.val_score)}"


@contextmanager
def watched(
    name: str,
    parameters: dict[str, Any],
    watcher: Watcher | Sequence[Watcher] | None,
    verbose: bool,
) -> Iterator[Watcher | None]:
    """One watcher for all that a user gave, and for the bar, if one is asked for.

    Raises:
        InvalidInput: Something that was given cannot be called, or is no choice.
    """
    if verbose not in (False, True):
        raise InvalidInput(f"verbose={verbose!r:.40} given; expected True or False.")
    if watcher is None:
        given: list[Watcher] = []
    else:
        given = list(watcher) if isinstance(watcher, Sequence) else [watcher]
    for one in given:
        if not callable(one):
            raise InvalidInput(
                f"a watcher that is a {type(one).__name__} given; expected a function "
                "of a step's record and the logits, or a list of such functions."
            )
    with ExitStack() as shown:
        if verbose:
            bar, total = shown.enter_context(display()), expected_steps(parameters)

            def show(record: StepRecord, logits: Tensor) -> None:
                state = step_in_words(record, parameters)
                bar.report(name, record.step, total, state)

            given.append(show)
        yield _together(given)


def _together(watchers: Sequence[Watcher]) -> Watcher | None:
    """All of them as one, which ends a training where any of them does."""
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def watch(record: StepRecord, logits: Tensor) -> bool:
        # Every one is told, whatever another one says.
        said = [watcher(record, logits) for watcher in watchers]
        return any(each is True for each in said)

    return watch
