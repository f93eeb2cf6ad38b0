"""Who is told of the steps of a fit, and may end it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from gsebo.errors import InvalidInput
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
                loss, accuracy = record.val_loss, record.val_accuracy
                state = f"val loss {loss:.3f}  accuracy {accuracy:.1%}"
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
