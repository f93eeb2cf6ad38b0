"""A fit needs hardly more memory for fifty inner steps than for five."""

import sys

import pytest
from benchmarks.memory import in_fresh_process


def above_idle(tau: int, who: str = "ours") -> int:
    case = {"dataset": "cora", "backbone": "gcn", "hidden": 16, "start": "cold"}
    found = in_fresh_process({**case, "who": who, "tau": tau})
    print(who, tau, found)
    return found["peak_bytes"] - found["idle_bytes"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_inner_steps() -> None:
    in_process = above_idle(1)  # may have to compile what the others find in a cache
    assert in_process > 0
    few, many = above_idle(5), above_idle(50)
    assert many < 1.25 * few
