"""Write the README's results table from the stored results.

``python scripts/readme_table.py`` rewrites the table; with ``--check`` it exits with 1
if the table is stale.
"""

import json
import statistics
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
TITLES = {
    "gcn": "GCN",
    "gat": "GAT",
    "sage": "GraphSAGE (mean)",
    "sage-gcn": "GraphSAGE (gcn)",
    "jk": "JK-Net",
    "mlp": "MLP, no edges",
}
METHODS = {"vanilla": "vanilla", "frozen": "frozen control", "gsebo": "**GSEBO**"}


def main() -> None:
    """Rewrite or check the table."""
    text = README.read_text("utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv[1:]:
        if fresh != text:
            sys.exit("the results table of README.md is stale: run `make readme`")
        return
    README.write_text(fresh, "utf-8")


def table() -> str:
    """Test accuracy in percent, ours with the paper's in brackets."""
    published = tomllib.loads((ROOT / "results/published.toml").read_text("utf-8"))
    accuracies = stored()
    names = [name.replace("-", " ").title() for name in published["datasets"]]
    names = [name.replace("Usa", "USA") for name in names]
    lines = [
        "| backbone | method | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for backbone, title in TITLES.items():
        for method, label in METHODS.items():
            if (backbone, method, published["datasets"][0]) not in accuracies:
                continue
            printed = published.get(backbone, {}).get(method)
            cells = []
            for number, dataset in enumerate(published["datasets"]):
                values = accuracies[backbone, method, dataset]
                paper = f" ({printed[number][0]:.1f})" if printed else ""
                cells.append(f"{mean_and_spread(values)}{paper}")
            lines.append(f"| {title} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def stored() -> dict[tuple[str, str, str], list[float]]:
    """Accuracies of the stored fits, by backbone, method and dataset."""
    found = defaultdict(list)
    for line in (ROOT / "results/table1.jsonl").read_text("utf-8").splitlines():
        fit = json.loads(line)
        key = fit["backbone"], fit["method"], fit["dataset"]
        found[key].append(100 * fit["test_accuracy"])
    return dict(found)


def mean_and_spread(values: list[float]) -> str:
    """Mean ± standard deviation, and the number of seeds where it is not ten."""
    seeds = "" if len(values) == 10 else f" [{len(values)} seeds]"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {spread:.1f}{seeds}"


if __name__ == "__main__":
    main()
