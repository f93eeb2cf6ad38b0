"""Stored fits, and how tables show them: shared by the scripts that write tables."""

import json
import statistics
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def fits(*names: str) -> Iterator[dict[str, Any]]:
    """Every fit of some files of ``results/``."""
    for name in names:
        for line in (RESULTS / name).read_text("utf-8").splitlines():
            yield json.loads(line)


def accuracies(
    stored: Iterator[dict[str, Any]], *keys: str
) -> dict[tuple[Any, ...], list[float]]:
    """Test accuracies in percent, by the values of some keys."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for fit in stored:
        found[tuple(fit[key] for key in keys)].append(100 * fit["test_accuracy"])
    return dict(found)


def published() -> dict[str, Any]:
    """The paper's figures."""
    return tomllib.loads((RESULTS / "published.toml").read_text("utf-8"))


def dataset_titles(names: list[str]) -> list[str]:
    """The datasets as headings."""
    return [name.replace("-", " ").title().replace("Usa", "USA") for name in names]


def mean_and_spread(values: list[float]) -> str:
    """Mean ± standard deviation, and the number of seeds where it is not ten."""
    seeds = "" if len(values) == 10 else f" [{len(values)} seeds]"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {spread:.1f}{seeds}"


def rewrite(path: Path, marker: str, table: str) -> None:
    """Put a table between two markers of a file; with ``--check`` only compare."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    text = path.read_text("utf-8")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    fresh = f"{before}{begin}\n{table}\n{end}{after}"
    if "--check" not in sys.argv[1:]:
        path.write_text(fresh, "utf-8")
    elif fresh != text:
        sys.exit(f"the table {marker} of {path.name} is stale: run `make readme`")
