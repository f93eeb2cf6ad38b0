import pytest
import torch

from gsebo.methods import run as threads
from gsebo.methods.run import alike_on_any_threads, threads_for
from gsebo.sparse.numba_compile import threads_given


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GSEBO_REPRODUCIBLE", "0")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_little_work_runs_on_one_thread() -> None:
    with threads_for(10):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_much_work_keeps_its_threads() -> None:
    with threads_for(10**9):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("work", [10, 10**9])
def test_the_number_comes_back_after_an_error(work: int) -> None:
    with pytest.raises(KeyboardInterrupt), threads_for(work):
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_one_thread_stays_one() -> None:
    torch.set_num_threads(1)
    with threads_for(10):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 1


def test_in_reproducible_mode_only_kernels_have_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "is_reproducible", lambda: True)
    monkeypatch.setattr(threads, "require_code_paths", lambda: None)
    with alike_on_any_threads():
        for work, runs, given in ((10, 1, 1), (10, 3, 2), (10**9, 1, 2)):
            with threads_for(work, runs):
                assert (torch.get_num_threads(), threads_given()) == (1, given)
        assert (torch.get_num_threads(), threads_given()) == (1, 2)
    assert (torch.get_num_threads(), threads_given()) == (2, 2)


def test_otherwise_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "is_reproducible", lambda: False)
    with alike_on_any_threads():
        assert (torch.get_num_threads(), threads_given()) == (2, 2)
