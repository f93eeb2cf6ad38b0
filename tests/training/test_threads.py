import pytest
import torch

from gsebo.training.threads import threads_for


@pytest.fixture(autouse=True)
def two_threads():
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
