"""Loss and accuracy as training goes on, by method or by set of nodes."""

from collections.abc import Mapping, Sequence

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
    method_legend,
)
from gsebo.report.figures.series import NODES, LineStyle, band, method_style
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import backbone_title, dataset_title, method_title, place_title

_KINDS = {
    "train_loss": ("Training loss", "training loss"),
    "test_accuracy": ("Test accuracy", "test accuracy, %"),
}
_LOSS = {"train": "train_loss", "validation": "val_loss"}
_ACCURACY = {
    "train": "train_accuracy",
    "validation": "val_accuracy",
    "test": "test_accuracy",
}


def convergence(evidence: Evidence) -> Drawing | None:
    """One panel for each network, dataset and kind of curve, all methods in it."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    groups, absent = [], []
    for kind, (heading, caption) in _KINDS.items():
        cards = []
        for row, dataset in [(r, d) for r in plan.rows for d in plan.datasets]:
            lines = [
                (results, kind, method_style(cell.method), cell.method)
                for cell, results in evidence.results.items()
                if (cell.row, cell.dataset) == (row, dataset)
                and mean_curve(results, kind)
            ]
            if not lines:
                absent.append(place_title(row, dataset))
                continue
            methods = tuple(dict.fromkeys(method for *_, method in lines))
            title = (
                f"{heading} of {', '.join(map(method_title, methods))} with "
                f"{place_title(row, dataset, ' on ')} against steps of the weights"
            )
            svg = _svg(f"{name}-{kind}-{row}-{dataset}", title, lines, height=210)
            panel = Panel(svg, Tags(methods, (row,), (dataset,)), caption)
            cards.append(Card(place_title(row, dataset), (panel,)))
        groups.append(CardGroup(heading, tuple(cards)))
    reading = (
        "Lines are means over seeds, bands one standard deviation. The horizontal axis "
        "counts the steps of the weights: one outer step of GSEBO is several of them. "
        "The training loss includes the weight decay."
    )
    return drawing(method_legend(name, plan.methods), groups, reading, absent)


def overfitting(evidence: Evidence) -> Drawing | None:
    """One card for each way to learn the strengths, a group for each dataset."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    rows = " and ".join(map(backbone_title, plan.rows))
    groups, absent = [], []
    for dataset in plan.datasets:
        cards: list[Card] = []
        for cell, results in evidence.results.items():
            if cell.dataset != dataset:
                continue
            setting = f" ({cell.setting})" if cell.setting else ""
            title = f"{method_title(cell.method)}{setting}"
            if mean_curve(results, "train_loss") is None:
                absent.append(f"{title}, {dataset_title(dataset)}")
                continue
            panels = _panels(f"{name}-{dataset}-{len(cards)}", title, cell, results)
            cards.append(Card(title, panels))
        heading = f"{rows} on {dataset_title(dataset)}"
        groups.append(CardGroup(heading, tuple(cards), columns=3))
        if not cards:
            absent.append(dataset_title(dataset))
    legend = [
        legend_of(f"{name}-legend-{nodes}", f"{nodes} nodes", style)
        for nodes, style in NODES.items()
    ]
    reading = (
        "Lines are means over seeds, bands one standard deviation. With one level the "
        "strengths descend on the training loss, with two (GSEBO) on that of the "
        "validation nodes, which is why validation is no measure there: only the test "
        "curve is. The training loss includes the weight decay; the loss of test nodes "
        "is not recorded."
    )
    return drawing(legend, groups, reading, absent)


def _panels(
    name: str, method: str, cell: Cell, results: Mapping[int, Result]
) -> tuple[Panel, ...]:
    panels = []
    for caption, columns in (("accuracy, %", _ACCURACY), ("loss", _LOSS)):
        title = (
            f"{caption.partition(',')[0].capitalize()} of {' and '.join(columns)} "
            f"nodes, {method} with {place_title(cell.row, cell.dataset, ' on ')}, "
            "against steps of the weights"
        )
        lines = [(results, column, NODES[n], None) for n, column in columns.items()]
        svg = _svg(f"{name}-{caption[:4]}", title, lines, height=200)
        tags = Tags((cell.method,), (cell.row,), (cell.dataset,))
        panels.append(Panel(svg, tags, caption))
    return tuple(panels)


def _svg(
    name: str,
    title: str,
    lines: Sequence[tuple[Mapping[int, Result], str, LineStyle, str | None]],
    height: int,
) -> str:
    """Draw curves: the results by seed, name of the column, style, and method."""

    def paint(axes: Axes) -> None:
        for results, column, style, method in lines:
            curve = mean_curve(results, column)
            assert curve is not None
            steps, mean, spread = curve
            factor = 1.0 if column.endswith("loss") else 100.0
            band(axes, (steps, factor * mean, factor * spread), style, method)
        axes.set_xlabel("steps of the weights")
        axes.margins(x=0.01)

    return draw_svg(name, title, paint, height=height)
