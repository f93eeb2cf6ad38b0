"""``python -m fuzz``: look for input that does harm."""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import gsebo  # noqa: F401  # Before torch, so that it can fix which code that runs.
from fuzz.engine import Fuzzer, Limits, Tally
from fuzz.target import Target

_FAMILIES = (
    "flips",
    "folders",
    "models",
    "graphs",
    "objects",
    "experiments",
    "calls",
    "commands",
)


def all_targets() -> dict[str, Target]:
    """Every target, by its name, in the order of the files."""
    modules = [importlib.import_module(f"fuzz.{name}") for name in _FAMILIES]
    found = [
        kind()
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Target)
        and kind.__module__ == module.__name__
    ]
    return {target.name: target for target in found}


def main() -> int:
    """Run; the exit code is 1 where anything was found."""
    targets = all_targets()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="of all targets")
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after these")
    parser.add_argument("--seed", type=int, default=0, help="of everything drawn")
    parser.add_argument("--only", nargs="+", choices=targets, metavar="NAME")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of one case")
    parser.add_argument("--repeat", metavar="CASE", help="as a violation was told")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path(tempfile.gettempdir()) / "gsebo-fuzz",
        help="folder for inputs that did harm",
    )
    given = parser.parse_args()
    named = [given.repeat.split(":")[0]] if given.repeat else given.only
    wanted = [targets[name] for name in named or targets]
    folder = Path(tempfile.mkdtemp(prefix="gsebo-fuzz-"))
    try:
        return _fuzz(given, wanted, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fuzz(given: argparse.Namespace, wanted: list[Target], folder: Path) -> int:
    begin = time.monotonic()
    fuzzer = Fuzzer(wanted, folder, given.keep, Limits(given.limit), _say)
    fuzzer.prepare(given.workers)
    if given.repeat:
        fuzzer.repeat(given.repeat)
    else:
        fuzzer.run(given.cases, given.seconds, given.seed, given.workers)
    print(table(fuzzer.tallies))
    violations = sum(len(each.findings) for each in fuzzer.tallies.values())
    print(f"seed {given.seed}, {time.monotonic() - begin:.0f} s")
    return 1 if violations else 0


def _say(text: str) -> None:
    print(text, flush=True)


def table(tallies: dict[str, Tally]) -> str:
    """What became of the cases of each target, as a table."""
    heads = ("cases", "refused", "accepted", "violation", "seconds")
    rows = {
        name: (each.cases, *each.counts.values(), round(each.seconds))
        for name, each in tallies.items()
    }
    rows["all"] = tuple(sum(column) for column in zip(*rows.values(), strict=True))
    lines = [f"{'target':16}" + "".join(f"{head:>10}" for head in heads)]
    for name, row in rows.items():
        lines.append(f"{name:16}" + "".join(f"{value:>10}" for value in row))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
