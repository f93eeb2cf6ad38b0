"""Write the README's results table from the stored results.

``python scripts/readme_table.py`` rewrites the table; with ``--check`` it exits with 1
if the table is stale.
"""

from stored_results import (
    ROOT,
    accuracies,
    dataset_titles,
    fits,
    mean_and_spread,
    published,
    rewrite,
)

TITLES = {
    "gcn": "GCN",
    "gat": "GAT",
    "sage": "GraphSAGE (mean)",
    "sage-gcn": "GraphSAGE (gcn)",
    "jk": "JK-Net",
    "mlp": "MLP, no edges",
}
METHODS = {
    "vanilla": "vanilla",
    "frozen": "control: frozen",
    "retrain": "control: retrained",
    "gsebo": "**GSEBO**",
    "train_val": "control: train + val labels",
}


def main() -> None:
    """Rewrite or check the table."""
    rewrite(ROOT / "README.md", "results", table())


def table() -> str:
    """Test accuracy in percent, ours with the paper's in brackets."""
    paper = published()
    stored = (fit for fit in fits("table1.jsonl", "methods.jsonl"))
    found = accuracies(
        (fit for fit in stored if fit["preset"] == "paper"),
        "backbone",
        "method",
        "dataset",
    )
    names = dataset_titles(paper["datasets"])
    lines = [
        "| backbone | method | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for backbone, title in TITLES.items():
        for method, label in METHODS.items():
            if (backbone, method, paper["datasets"][0]) not in found:
                continue
            printed = paper.get(backbone, {}).get(method)
            cells = []
            for number, dataset in enumerate(paper["datasets"]):
                values = found[backbone, method, dataset]
                bracket = f" ({printed[number][0]:.1f})" if printed else ""
                cells.append(f"{mean_and_spread(values)}{bracket}")
            lines.append(f"| {title} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
