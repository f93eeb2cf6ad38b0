"""A fit needs hardly more memory for fifty inner steps than for five."""

import sys
from collections.abc import Iterator

import pytest
import torch
from benchmarks.memory import in_fresh_process
from benchmarks.memory_child import measure

CASE = {"dataset": "cora", "backbone": "gcn", "hidden": 16, "start": "cold"}


@pytest.fixture
def compiled() -> Iterator[None]:
    """The measured processes find in a cache what they would have to compile."""
    threads = torch.get_num_threads()
    # On one thread, like them: other numbers take other kernels.
    torch.set_num_threads(1)
    measure({**CASE, "who": "ours", "tau": 1})
    yield
    torch.set_num_threads(threads)


def above_idle(tau: int, who: str = "ours") -> int:
    found = in_fresh_process({**CASE, "who": who, "tau": tau})
    print(who, tau, found)
    return found["peak_bytes"] - found["idle_bytes"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.usefixtures("compiled")
def test_memory_does_not_grow_with_the_inner_steps() -> None:
    few, many = above_idle(5), above_idle(50)
    assert few > 0
    assert many < 1.25 * few
