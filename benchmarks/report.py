"""Render RESULTS.md from the stored lines, and from nothing else."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import sections
from benchmarks.amortised_section import amortised
from benchmarks.convert_section import convert
from benchmarks.failure import BenchmarkError
from benchmarks.large_section import large
from benchmarks.markdown import Line, distinct
from benchmarks.records import Records, read_lines

PAGE = Path(__file__).parent / "RESULTS.md"
SECTIONS: dict[str, tuple[str, Callable[[Sequence[Line]], str]]] = {
    "equality": ("Is the hypergradient right?", sections.equality),
    "timing": ("One outer step", sections.timing),
    "fit": ("A whole fit", sections.fit),
    "memory": ("Memory by the number of inner steps", sections.memory),
    "replicas": ("Several fits at once", sections.replicas),
    "scale": ("One outer step by the number of edges", sections.scale),
    "amortised": ("Amortised strengths", amortised),
    "methods": ("Whole fits of other methods beside GSEBO", sections.methods),
    "convert": ("From an edge list to a graph folder", convert),
    "large": ("Large graphs", large),
    "operators": ("Sparse operators on a GPU", sections.operators),
}
_INTRODUCTION = """\
# Benchmarks

Rendered by `python -m benchmarks report` from `benchmarks/results/*.jsonl`; `-` is what
has not been measured. There are two kinds of peers. *Plain torch* is what a careful
engineer writes by hand (`benchmarks/peers/with_torch.py`): sparse features, only the
nodes and edges that the labelled nodes depend on, torch's fastest sparse products, one
step of Adam as one node of the graph. *TorchOpt* and *higher* are what one puts
together from libraries: PyG's layers with the strengths multiplied into their messages,
on dense features and the whole graph, under a differentiable optimiser. All
differentiate through every inner step by autograd. The first ratio is the one to judge
ours by."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--page", type=Path, default=PAGE, help="what to write")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if the page is stale"
    )


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Write or check the page."""
    del records
    page = render(arguments.results)
    if not arguments.check:
        arguments.page.write_text(page, "utf-8")
        return
    if not arguments.page.is_file() or arguments.page.read_text("utf-8") != page:
        print("the page is stale: run `python -m benchmarks report`", file=sys.stderr)
        raise SystemExit(1)


def render(folder: Path) -> str:
    """The page, with a section for every benchmark that has results."""
    parts = [_INTRODUCTION]
    for name, (title, section) in SECTIONS.items():
        lines = read_lines(folder / f"{name}.jsonl")
        if lines:
            parts += [f"## {title}", _origin(lines), section(lines)]
    if len(parts) == 1:
        raise BenchmarkError(
            f"no results in {folder}: expected JSON lines of a benchmark."
        )
    return "\n\n".join(parts) + "\n"


def _origin(lines: Sequence[Line]) -> str:
    """The commands that made the lines, and what they ran on."""
    commands = distinct(line["command"] for line in lines)
    machines = distinct(
        f"{line['device']}; {line['cores']} cores of {line['processor']}; "
        f"OpenMP wait policy {line['wait_policy']}; "
        + ", ".join(f"{key} {value}" for key, value in line["versions"].items())
        for line in lines
    )
    shown = "\n".join(commands)
    return f"```sh\n{shown}\n```\n\n" + "\n\n".join(f"On {text}." for text in machines)
