"""``python -m benchmarks NAME``: run one benchmark, or render the results."""

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.failure import BenchmarkError
from gsebo.errors import InvalidInput

COMMANDS = {
    "equality": "do all contenders compute the same hypergradient, and the right one",
    "timing": "time of one outer step",
    "fit": "time of a whole fit",
    "memory": "peak memory by the number of inner steps",
    "replicas": "time of ten fits at once beside one",
    "scale": "time of one outer step by the number of edges",
    "amortised": "cost of amortised strengths: a step, by edges, a whole fit",
    "methods": "whole fits of amortised, auto and ten seeds beside one of GSEBO",
    "convert": "time and memory of turning an edge list into a graph folder",
    "large": "batches of graphs on disk: time and memory by the number of edges",
    "operators": "sparse operators on a GPU beside the floor of their memory traffic",
    "report": "render RESULTS.md from the stored lines",
}
_MODULES = {"fit": "whole_fit"}
_FOLDERS = ("--results", "--folder")


def main(arguments: list[str]) -> None:
    """Run the benchmark that is named first."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        listed = "\n".join(f"  {key:11}{text}" for key, text in COMMANDS.items())
        asked = name in ("", "-h", "--help")
        given = "" if asked else f"no benchmark is called {name!r}.\n"
        print(f"{given}python -m benchmarks NAME [--help]\n{listed}", file=sys.stderr)
        raise SystemExit(0 if name in ("-h", "--help") else 2)
    try:
        _run(name, arguments[1:])
    except (BenchmarkError, InvalidInput) as error:
        print(f"python -m benchmarks {name}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def _run(name: str, arguments: list[str]) -> None:
    # Imported here: only the benchmark that is asked for has to be there.
    from benchmarks.command_line import Parser
    from benchmarks.records import RESULTS, Records

    module = import_module(f"benchmarks.{_MODULES.get(name, name)}")
    parser = Parser(
        prog=f"python -m benchmarks {name}",
        description=(module.__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the JSON lines"
    )
    module.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    records = Records(name, parsed.results, _without_folders(name, arguments))
    module.run(parsed, records)


def _without_folders(name: str, arguments: list[str]) -> list[str]:
    """The command to store: where lines and graphs lie is nobody's business."""
    kept = [name]
    rest = iter(arguments)
    for argument in rest:
        if argument in _FOLDERS:
            next(rest, None)
        elif argument.partition("=")[0] not in _FOLDERS:
            kept.append(argument)
    return kept


if __name__ == "__main__":
    main(sys.argv[1:])
