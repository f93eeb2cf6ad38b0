"""What is begun before it is asked for comes to the same, on any number of cores."""

from collections.abc import Callable
from threading import Event, current_thread
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo.methods.auto import search as searching
from gsebo.methods.auto.ahead import Ahead, NoLongerWanted
from gsebo.methods.auto.search import Search
from gsebo.methods.run import drawn_by

from .auto_examples import auto, graph
from .examples import assert_same_fit
from .test_auto import drop


def squared(key: int, unwanted: Callable[[], bool]) -> int:
    return key * key


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_are_those_of_the_keys(workers: int) -> None:
    ahead = Ahead(squared)
    ahead.expect([3, 1, 2], workers)
    assert [ahead.result(key) for key in (1, 2, 3, 4, 1)] == [1, 4, 9, 16, 1]
    ahead.close()


def test_nothing_is_done_twice() -> None:
    done: list[int] = []

    def work(key: int, unwanted: Callable[[], bool]) -> int:
        done.append(key)
        return key

    ahead = Ahead(work)
    ahead.expect([1, 2], 2)
    ahead.expect([2, 3], 2)
    assert [ahead.result(key) for key in (1, 2, 3, 3)] == [1, 2, 3, 3]
    ahead.expect([1], 2)
    ahead.close()
    assert sorted(done) == [1, 2, 3]


def test_what_fails_says_so_only_to_who_asks() -> None:
    def work(key: int, unwanted: Callable[[], bool]) -> int:
        if key == 1:
            raise ValueError("one")
        return key

    ahead = Ahead(work)
    ahead.expect([1, 2], 2)
    assert ahead.result(2) == 2
    with pytest.raises(ValueError, match="one"):
        ahead.result(1)
    ahead.close()


def test_what_is_given_up_ends_soon_and_can_be_asked_for_again() -> None:
    begun, ended = Event(), Event()

    def work(key: int, unwanted: Callable[[], bool]) -> int:
        if ended.is_set() or key != 1:
            return key
        begun.set()
        while not unwanted():
            pass
        ended.set()
        raise NoLongerWanted

    ahead = Ahead(work)
    ahead.expect([1, 2], 2)
    assert begun.wait(60)
    ahead.forget([1])
    assert ended.wait(60)
    assert ahead.result(1) == 1
    ahead.close()


def test_threads_draw_one_after_another() -> None:
    torch.manual_seed(3)
    expected, after = [], torch.get_rng_state()
    for seed in range(6):
        with drawn_by(seed):
            expected.append(float(torch.randn(50_000)[-1]))

    def work(key: int, unwanted: Callable[[], bool]) -> float:
        with drawn_by(key):
            return float(torch.randn(50_000)[-1])

    ahead = Ahead(work)
    ahead.expect(range(6), 4)
    assert [ahead.result(seed) for seed in range(6)] == expected
    ahead.close()
    assert torch.equal(torch.get_rng_state(), after)


@pytest.fixture(params=["vanilla,mlp,gsebo,amortised", "vanilla,train_val"])
def methods(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def on_cores(number: int, data: Data, **options: Any) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        return auto(**options).fit(data)
    finally:
        torch.set_num_threads(before)


def test_a_choice_is_the_same_on_any_number_of_cores(
    methods: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(split="random:30/30/40")
    options = {"methods": methods, "features": "auto", "num_folds": 3}
    threads: dict[str, set[str]] = {}
    original = Search._train

    def noted(self: Search, tried: Any, *others: Any) -> Any:
        threads.setdefault(tried.method, set()).add(current_thread().name)
        return original(self, tried, *others)

    monkeypatch.setattr(Search, "_train", noted)
    one = on_cores(1, data, **options)
    main = {current_thread().name}
    assert all(names == main for names in threads.values())
    for cores in (2, 5):
        threads.clear()
        # More than this machine may have.
        monkeypatch.setattr(searching, "thread_limit", lambda cores=cores: cores)
        many = on_cores(2, data, **options)
        assert_same_fit(one, many)
        assert [drop(each) for each in one.choice_] == [
            drop(each) for each in many.choice_
        ]
        # What is not known to be able to runs alone.
        for method, names in threads.items():
            assert (names == main) == (method == "train_val"), method
