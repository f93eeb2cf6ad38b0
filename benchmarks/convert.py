"""Time and peak memory of turning an edge list into a graph folder.

The edges are those of a generated power-law graph in random order, one in a hundred of
them twice. A fresh process on one thread runs ``gsebo data convert`` on the file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import count
from benchmarks.failure import BenchmarkError
from benchmarks.records import Records

ROOT = Path(__file__).resolve().parent.parent
FORMATS = ("csv", "parquet")
_ROWS_AT_ONCE = 2**20
_EXPONENT = 2.5
_REPEATED = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument(
        "--edges", nargs="+", type=count, default=[10**6, 10**7], help="rows of files"
    )
    parser.add_argument(
        "--degree", type=count, default=10, help="edges per node, in the mean"
    )
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=["csv"])


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every size in every format."""
    for edges in arguments.edges:
        for kind in arguments.formats:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"edges.{kind}"
                write_edges(path, edges, arguments.degree)
                size = path.stat().st_size
                found = in_fresh_process(path, Path(folder) / "graph")
            line = {"format": kind, "rows": edges, "degree": arguments.degree, **found}
            line["file_bytes"] = size
            line["megabytes_per_second"] = size / 1e6 / found["seconds"]
            records.add(line)


def write_edges(path: Path, rows: int, degree: int) -> None:
    """Write an edge list, some rows at a time."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as parquet

    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    kinds = {".csv": arrow_csv.CSVWriter, ".parquet": parquet.ParquetWriter}
    with kinds[path.suffix](str(path), schema) as writer:
        for source, target in _pieces(rows, max(rows // degree, 2)):
            columns = [pa.array(source), pa.array(target)]
            writer.write_table(pa.table(columns, schema=schema))


def in_fresh_process(path: Path, out: Path) -> dict[str, Any]:
    """What a process says that converts the file and does nothing else."""
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.convert_child", str(path), str(out)],
        env=os.environ | one_thread,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise BenchmarkError(f"the process for {path.name} failed: {' '.join(last)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _pieces(rows: int, nodes: int) -> Iterator[tuple[Any, Any]]:
    generator = np.random.default_rng(0)
    for begin in range(0, rows, _ROWS_AT_ONCE):
        length = min(_ROWS_AT_ONCE, rows - begin)
        ends = [_heavy_tailed(generator, length, nodes) for _ in range(2)]
        again = generator.random(length) < _REPEATED
        places = np.where(again, generator.integers(length, size=length), range(length))
        yield ends[0][places], ends[1][places]


def _heavy_tailed(generator: np.random.Generator, length: int, nodes: int) -> Any:
    """Nodes in proportion to weights of a power law, their names shuffled."""
    power = 1 - 1 / (_EXPONENT - 1)
    rank = (nodes * generator.random(length) ** (1 / power)).astype(np.int64)
    # A prime number of steps reaches every name.
    return rank.clip(max=nodes - 1) * 2654435761 % nodes
