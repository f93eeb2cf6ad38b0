"""Training loss and test accuracy as training goes on."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence, mean_curve, outline
from gsebo.report.figures.drawing import (
    Card,
    CardGroup,
    Drawing,
    Panel,
    Tags,
    drawing,
    method_legend,
)
from gsebo.report.figures.look import method_look
from gsebo.report.figures.series import band
from gsebo.report.figures.svg import draw_svg, tag
from gsebo.report.names import backbone_title, dataset_title, method_title

_KINDS = {
    "train_loss": ("Training loss", "training loss", 1.0),
    "test_accuracy": ("Test accuracy", "test accuracy, %", 100.0),
}


def convergence(evidence: Evidence) -> Drawing | None:
    """One panel for each network, dataset and kind of curve, all methods in it."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    groups, absent = [], []
    for kind, (heading, _, factor) in _KINDS.items():
        cards = []
        for row in plan.rows:
            for dataset in plan.datasets:
                cells = [
                    cell
                    for cell, results in evidence.results.items()
                    if (cell.row, cell.dataset) == (row, dataset)
                    and mean_curve(results, kind)
                ]
                title = f"{backbone_title(row)}, {dataset_title(dataset)}"
                if not cells:
                    absent.append(title)
                    continue
                panel = _panel(
                    evidence, cells, f"{name}-{kind}-{row}-{dataset}", kind, factor
                )
                cards.append(Card(title, (panel,)))
        groups.append(CardGroup(heading, tuple(cards)))
    legend = method_legend(name, plan.methods)
    reading = (
        "Lines are means over seeds, bands one standard deviation. The horizontal axis "
        "counts the steps of the weights: one outer step of GSEBO is several of them. "
        "The training loss includes the weight decay."
    )
    return drawing(legend, groups, reading, absent)


def _panel(
    evidence: Evidence, cells: Sequence[Cell], name: str, kind: str, factor: float
) -> Panel:
    heading, label, _ = _KINDS[kind]

    def paint(axes: Axes) -> None:
        for cell in cells:
            curve = mean_curve(evidence.results[cell], kind)
            assert curve is not None
            steps, mean, spread = curve
            look = method_look(cell.method)
            band(
                axes,
                steps,
                factor * mean,
                factor * spread,
                look,
                tag("method", cell.method),
            )
        axes.set_xlabel("steps of the weights")
        axes.margins(x=0.01)

    methods = tuple(dict.fromkeys(cell.method for cell in cells))
    place = f"{backbone_title(cells[0].row)} on {dataset_title(cells[0].dataset)}"
    words = ", ".join(method_title(method) for method in methods)
    title = f"{heading} of {words} with {place} against steps of the weights"
    svg = draw_svg(name, title, paint, height=210)
    tags = Tags(methods, (cells[0].row,), (cells[0].dataset,))
    return Panel(svg, tags, label)
