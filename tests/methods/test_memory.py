"""Reverse needs hardly more memory for fifty inner steps than for five."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.skipif(sys.platform == "win32", reason="no ru_maxrss there")
def test_memory_does_not_grow_with_the_inner_steps() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--taus", "5", "50"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout)
    header, *rows = done.stdout.splitlines()
    assert header == "tau | reverse MB | unrolled MB"
    few, many = ([float(number) for number in row.split(" | ")] for row in rows)
    assert (few[0], many[0]) == (5, 50)
    assert few[1] > 100
    assert many[1] < 1.2 * few[1]
