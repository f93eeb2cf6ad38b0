"""Write the table of compared methods into docs/results.md, from the stored results.

``python scripts/methods_table.py`` rewrites the table; with ``--check`` it exits with 1
if the table is stale.
"""

import json
from typing import Any

from stored_results import (
    ROOT,
    accuracies,
    dataset_titles,
    fits,
    mean_and_spread,
    published,
    rewrite,
)

ORDER = (
    "vanilla",
    "dropedge",
    "adaedge",
    "gaug_m",
    "gaug_o",
    "ptdnet",
    "neuralsparse",
    "bgcn",
    "vgcn",
    "magna",
    "idgl",
    "lds",
    "prognn",
)
BACKBONES = ("gcn", "gat", "sage", "jk", "magna")


def main() -> None:
    """Rewrite or check the table."""
    rewrite(ROOT / "docs/results.md", "methods", table())


def table() -> str:
    """Test accuracy in percent, ours with the paper's in brackets."""
    paper = published()
    stored = (as_published(fit) for fit in fits("methods.jsonl"))
    found = accuracies(
        (fit for fit in stored if fit is not None),
        "method",
        "backbone",
        "changes",
        "dataset",
    )
    names = dataset_titles(paper["datasets"])
    lines = [
        "| method | backbone | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    rows = sorted({key[:3] for key in found}, key=place)
    for method, backbone, changes in rows:
        printed = printed_row(paper, method, backbone)
        cells = []
        for number, dataset in enumerate(paper["datasets"]):
            values = found.get((method, backbone, changes, dataset))
            if values is None:
                cells.append("-")
                continue
            bracket = f" ({printed[number][0]:.1f})" if printed else ""
            cells.append(f"{mean_and_spread(values)}{bracket}")
        label = f"{method}, {changes}" if changes else method
        lines.append(f"| {label} | {backbone} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_published(fit: dict[str, Any]) -> dict[str, Any] | None:
    """The fit with its changed parameters in words, if its preset is the published."""
    if fit["preset"] != "gaug" and fit["method"] != "magna":
        return None
    changes = ", ".join(f"{k} = {json.dumps(v)}" for k, v in fit["set"].items())
    return fit | {"changes": changes.replace('"', "")}


def place(row: tuple[str, str, str]) -> tuple[int, int, str]:
    """Where a row stands."""
    method, backbone, changes = row
    return ORDER.index(method), BACKBONES.index(backbone), changes


def printed_row(paper: dict[str, Any], method: str, backbone: str) -> Any:
    """The paper's row, if it has one."""
    if method == "vanilla":
        return paper.get(backbone, {}).get("vanilla")
    return paper["compared"].get(backbone, {}).get(method)


if __name__ == "__main__":
    main()
