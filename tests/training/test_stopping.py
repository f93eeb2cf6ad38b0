"""When training stops, and which step is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsebo.training import Patience, StepRecord


def record(step: int, loss: float, accuracy: float = 0.5) -> StepRecord:
    return StepRecord(
        step=step,
        inner_steps=step,
        train_loss=0.0,
        val_loss=loss,
        train_accuracy=1.0,
        val_accuracy=accuracy,
        changed_edges=0,
        changed_strength=1.0,
        seconds=0.0,
    )


def run(patience: Patience, records: list[StepRecord]) -> tuple[int, StepRecord | None]:
    """Number of steps taken, and the one that is kept."""
    best = None
    for taken, new in enumerate(records):
        if patience.is_over(taken, best):
            return taken, best
        if patience.is_better(new, best):
            best = new
    return len(records), best


VALUES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12
)


@given(values=VALUES, limit=st.integers(1, 4))
def test_by_loss(values: list[tuple[int, int]], limit: int) -> None:
    records = [record(k, *value) for k, value in enumerate(values, start=1)]
    taken, best = run(Patience("loss", limit), records)
    seen = records[:taken]
    assert best == min(seen, key=lambda r: (r.val_loss, r.step))
    assert taken == len(records) or taken - best.step == limit
    assert taken - best.step <= limit


@given(values=VALUES, limit=st.integers(1, 4))
def test_by_accuracy_and_of_equals_by_loss(
    values: list[tuple[int, int]], limit: int
) -> None:
    records = [record(k, *value) for k, value in enumerate(values, start=1)]
    taken, best = run(Patience("accuracy", limit), records)
    seen = records[:taken]
    assert best == min(seen, key=lambda r: (-r.val_accuracy, r.val_loss, r.step))
    assert taken == len(records) or taken - best.step == limit


@pytest.mark.parametrize("select_by", ["loss", "accuracy"])
def test_an_equal_step_is_not_better(select_by: str) -> None:
    patience = Patience(select_by, 3)
    assert patience.is_better(record(1, 0.5), None)
    assert not patience.is_better(record(2, 0.5), record(1, 0.5))


def test_nothing_is_over_before_it_began() -> None:
    assert not Patience("loss", 1).is_over(0, None)
    assert not Patience("loss", 1).is_over(100, None)


def test_a_nan_is_never_better() -> None:
    nan = float("nan")
    assert not Patience("loss", 1).is_better(record(2, nan), record(1, 0.5))


@given(values=VALUES)
def test_of_equal_accuracies_the_first(values: list[tuple[int, int]]) -> None:
    records = [record(k, *value) for k, value in enumerate(values, start=1)]
    _, best = run(Patience("first_accuracy", 100), records)
    assert best == max(records, key=lambda r: (r.val_accuracy, -r.step))


@given(values=VALUES)
def test_the_last_whatever_it_is(values: list[tuple[int, int]]) -> None:
    records = [record(k, *value) for k, value in enumerate(values, start=1)]
    assert run(Patience("last", 1), records) == (len(records), records[-1])
