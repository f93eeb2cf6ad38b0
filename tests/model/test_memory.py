"""Scores of a graph in files need no more memory than was allowed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MEMORY = 50_000_000


def write_graph(folder: Path, num_nodes: int, num_edges: int) -> None:
    """A random graph in which some nodes have many neighbors."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    source = generator.integers(0, num_nodes, num_edges)
    target = (num_nodes * generator.random(num_edges) ** 2).astype(np.int64)
    keys = np.sort(target * num_nodes + source)
    keys = keys[np.diff(keys, prepend=-1) > 0]
    target, source = np.divmod(keys, num_nodes)
    target, source = target[target != source], source[target != source]
    indptr = np.searchsorted(target, np.arange(num_nodes + 1)).astype(np.int64)
    x = generator.standard_normal((num_nodes, 32), dtype=np.float32)
    np.save(folder / "indptr.npy", indptr)
    np.save(folder / "source.npy", source.astype(np.int32))
    np.save(folder / "x.npy", x)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_peak_memory_is_within_the_budget(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    write_graph(small, 100, 400)
    # Features take 13 MB, what the first layer gives 26 MB, and all edges at once over
    # half a gigabyte.
    write_graph(large, 100_000, 500_000)
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    program = Path(__file__).with_name("peak.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, small, large, str(MEMORY)],
        capture_output=True,
        text=True,
        env={**os.environ, **one_thread},
    )
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout)
    assert 0 < peak < MEMORY, f"{peak / 1e6:.0f} MB"
    assert {path.name for path in large.iterdir()} == {
        "indptr.npy",
        "out",
        "predicted",
        "source.npy",
        "x.npy",
    }
