"""Time and memory of training on batches of a graph on disk, by its number of edges.

The graphs have power-law degrees, 32 features and 10 classes. A fresh process fits
``Amortised`` with a strength of its own for every edge, then predicts all nodes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.command_line import count
from benchmarks.failure import BenchmarkError
from benchmarks.records import Records
from gsebo.data.datasets.registry import is_graph_folder
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.synthetic.power_law import write_power_law

ROOT = Path(__file__).resolve().parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument(
        "--edges",
        nargs="+",
        type=count,
        default=[10**5, 10**6, 10**7, 10**8],
        help="edges to draw",
    )
    parser.add_argument(
        "--nodes-per-edge", type=_share, default=0.1, help="nodes to draw for each"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch-size", type=count, default=512)
    parser.add_argument(
        "--folder",
        type=Path,
        help="where graphs are kept and looked for; by default they are thrown away",
    )
    parser.add_argument(
        "--full-batch",
        action="store_true",
        help="train on the whole graph too, where it fits into memory",
    )
    parser.add_argument(
        "--only-fit", action="store_true", help="leave out predicting all nodes"
    )


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every size."""
    for edges in arguments.edges:
        nodes = int(edges * arguments.nodes_per_edge)
        with _place(arguments.folder) as place:
            graph = drawn(place, nodes, edges)
            line: dict[str, Any] = {
                "requested_edges": edges,
                "nodes": nodes,
                "edges": graph.manifest.num_edges,
                "batch_size": arguments.batch_size,
            }
            device, predict = arguments.device, not arguments.only_fit
            line |= in_fresh_process(graph, arguments.batch_size, device, predict)
            if arguments.full_batch:
                line["whole"] = in_fresh_process(graph, None, device, predict)
        records.add(line, device=arguments.device)


def drawn(place: Path, nodes: int, edges: int) -> GraphFolder:
    """The graph of this size in a folder, drawn unless it is there."""
    path = place / f"power-law-{nodes}-{edges}"
    if not is_graph_folder(path):
        return write_power_law(path, nodes, edges)
    graph = GraphFolder.open(path)
    found = graph.manifest.facts.get("drawn", {})
    expected = {"num_nodes": nodes, "num_edges": edges}
    if {key: found.get(key) for key in expected} != expected:
        raise BenchmarkError(
            f"{path} holds another graph; expected one of {nodes} nodes and {edges} "
            "edges, as this benchmark draws it."
        )
    return graph


def in_fresh_process(
    graph: GraphFolder, batch_size: int | None, device: str, predict: bool
) -> dict[str, Any]:
    """What a process says that trains on the graph and does nothing else."""
    given = [str(graph.path.resolve()), json.dumps([batch_size, device, predict])]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.large_child", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise BenchmarkError(
            f"the process for {graph.path.name} ended with {done.returncode}: "
            f"{' '.join(last)}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """A folder that is kept, or one that is not."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
        return
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(
            f"{text!r} given, expected a number above 0 and at most 10"
        )
    return number
