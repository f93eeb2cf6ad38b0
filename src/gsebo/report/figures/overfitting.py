"""Curves of training, validation and test nodes, for one level and for two."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from gsebo.experiments import Cell, Result
from gsebo.report.evidence import Evidence, mean_curve, outline
from gsebo.report.figures.drawing import (
    Card,
    CardGroup,
    Drawing,
    Panel,
    Tags,
    drawing,
    legend_of,
)
from gsebo.report.figures.look import NODES
from gsebo.report.figures.series import band
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import backbone_title, dataset_title, method_title

_ACCURACY = {
    "train": "train_accuracy",
    "validation": "val_accuracy",
    "test": "test_accuracy",
}
_LOSS = {"train": "train_loss", "validation": "val_loss"}


def overfitting(evidence: Evidence) -> Drawing | None:
    """One card for each way to learn the strengths, a group for each dataset."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    groups, absent = [], []
    for dataset in plan.datasets:
        cards: list[Card] = []
        for cell, results in evidence.results.items():
            if cell.dataset != dataset:
                continue
            if mean_curve(results, "train_loss") is None:
                absent.append(f"{_title(cell)}, {dataset_title(dataset)}")
                continue
            cards.append(_card(f"{name}-{dataset}-{len(cards)}", cell, results))
        rows = " and ".join(map(backbone_title, plan.rows))
        heading = f"{rows} on {dataset_title(dataset)}"
        groups.append(CardGroup(heading, tuple(cards), columns=3))
        if not cards:
            absent.append(dataset_title(dataset))
    legend = [
        legend_of(f"{name}-legend-{nodes}", f"{nodes} nodes", look)
        for nodes, look in NODES.items()
    ]
    reading = (
        "Lines are means over seeds, bands one standard deviation. With one level the "
        "strengths descend on the training loss, with two (GSEBO) on that of the "
        "validation nodes, which is why validation is no measure there: only the test "
        "curve is. The training loss includes the weight decay; the loss of test nodes "
        "is not recorded."
    )
    return drawing(legend, groups, reading, absent)


def _title(cell: Cell) -> str:
    setting = f" ({cell.setting})" if cell.setting else ""
    return f"{method_title(cell.method)}{setting}"


def _card(name: str, cell: Cell, results: Mapping[int, Result]) -> Card:
    tags = Tags((cell.method,), (cell.row,), (cell.dataset,))
    panels = []
    for caption, columns, factor in (
        ("accuracy, %", _ACCURACY, 100.0),
        ("loss", _LOSS, 1.0),
    ):

        def paint(
            axes: Axes, columns: dict[str, str] = columns, factor: float = factor
        ) -> None:
            for nodes, column in columns.items():
                curve = mean_curve(results, column)
                assert curve is not None
                steps, mean, spread = curve
                band(axes, steps, factor * mean, factor * spread, NODES[nodes])
            axes.set_xlabel("steps of the weights")
            axes.margins(x=0.01)

        title = (
            f"{caption.partition(',')[0].capitalize()} of {' and '.join(columns)} "
            f"nodes, {_title(cell)} with {backbone_title(cell.row)} on "
            f"{dataset_title(cell.dataset)}, against steps of the weights"
        )
        svg = draw_svg(f"{name}-{caption[:4]}", title, paint, height=200)
        panels.append(Panel(svg, tags, caption))
    return Card(_title(cell), tuple(panels))
