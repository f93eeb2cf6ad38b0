"""Threads make batches ready; what comes out does not know of them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numba
import pytest
import torch

from gsebo.data.formats.folder import write_folder
from gsebo.loader.prefetch import map_in_threads, prefetch
from gsebo.methods import GraphClassifier
from gsebo.sparse.numba_compile import kernel_threads, thread_limit
from methods.batch_examples import amortised_on_batches, gsebo_on_batches, losses
from methods.examples import small_graph

several = pytest.mark.skipif(
    numba.config.NUMBA_NUM_THREADS < 2, reason="numba was started with one thread"
)
in_threads = pytest.mark.parametrize(
    "run",
    [map_in_threads, lambda *given: list(prefetch(*given))],
    ids=["all", "prefetch"],
)
Run = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@several
@in_threads
def test_results_are_in_order_and_come_from_other_threads(run: Run) -> None:
    def work(number: int) -> tuple[int, str, int, bool]:
        return (
            number,
            threading.current_thread().name,
            thread_limit(),
            torch.is_grad_enabled(),
        )

    with torch.no_grad():
        numbers, names, limits, recorded = zip(*run(work, range(20)), strict=True)
    assert numbers == tuple(range(20))
    assert threading.current_thread().name not in names
    assert set(limits) == {1}
    assert set(recorded) == {False}


@in_threads
def test_one_thread_is_this_one(run: Run) -> None:
    with kernel_threads(1):
        names = run(lambda _: threading.current_thread().name, range(3))
    assert names == [threading.current_thread().name] * 3


@in_threads
def test_an_error_comes_through(run: Run) -> None:
    def work(number: int) -> int:
        return 1 // (number - 5)

    with pytest.raises(ZeroDivisionError):
        run(work, range(20))


@several
def test_whoever_stops_listening_ends_the_work() -> None:
    made: list[int] = []

    def work(number: int) -> int:
        made.append(number)
        return number

    for number in prefetch(work, range(1000)):
        if number == 3:
            break
    assert len(made) < 20
    assert not [each for each in threading.enumerate() if "Pool" in each.name]


@pytest.mark.exact
@several
@pytest.mark.parametrize("make", [gsebo_on_batches, amortised_on_batches])
@pytest.mark.parametrize("sampler", ["neighbor", "cluster"])
def test_a_fit_is_the_same_on_any_number_of_threads(
    make: Callable[..., GraphClassifier], sampler: str, tmp_path: Any
) -> None:
    data = small_graph(60)
    folder = write_folder(data, tmp_path / "g")
    fits = []
    for threads in (1, 2):
        with kernel_threads(threads):
            fits.append(make(sampler=sampler, batches_per_step=2).fit(folder))
    assert losses(fits[0]) == losses(fits[1])
    assert torch.equal(*(fit.predict_proba(folder) for fit in fits))
