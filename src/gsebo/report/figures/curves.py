"""Loss and accuracy as training goes on, by method or by set of nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from matplotlib.axes import Axes

from gsebo.experiments import Cell, Result
from gsebo.report.evidence import Evidence, mean_curve, outline
from gsebo.report.figures.drawing import Drawing, Panel, Tags, draw_svg
from gsebo.report.figures.series import NODES, LineStyle, band, method_style
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
# Results by seed, name of the column, how it is drawn, and the method to filter by.
_Curve = tuple[Mapping[int, Result], str, LineStyle, str | None]


def convergence(evidence: Evidence) -> Drawing | None:
    """One panel for each network, dataset and kind of curve, all methods in it."""
    plan = outline(evidence.recipe)
    figure = Drawing(
        evidence.recipe.name,
        "Lines are means over seeds, bands one standard deviation. The horizontal axis "
        "counts the steps of the weights: one outer step of GSEBO is several of them. "
        "The training loss includes the weight decay.",
    )
    figure.add_methods(plan.methods)
    for kind, (heading, caption) in _KINDS.items():
        figure.add_group(heading)
        for row, dataset in product(plan.rows, plan.datasets):
            curves: list[_Curve] = [
                (results, kind, method_style(cell.method), cell.method)
                for cell, results in evidence.results.items()
                if (cell.row, cell.dataset) == (row, dataset)
                and mean_curve(results, kind)
            ]
            place = place_title(row, dataset)
            if not curves:
                figure.absent.append(place)
                continue
            methods = tuple(dict.fromkeys(method for *_, method in curves if method))
            title = (
                f"{heading} of {', '.join(map(method_title, methods))} with "
                f"{place_title(row, dataset, ' on ')} against steps of the weights"
            )
            name = f"{figure.name}-{kind}-{row}-{dataset}"
            svg = draw_svg(name, title, _painter(curves), height=210)
            tags = Tags(methods, (row,), (dataset,))
            figure.add_card(place, Panel(svg, tags, caption))
    return figure.finished()


def overfitting(evidence: Evidence) -> Drawing | None:
    """One card for each way to learn the strengths, a group for each dataset."""
    plan = outline(evidence.recipe)
    figure = Drawing(
        evidence.recipe.name,
        "Lines are means over seeds, bands one standard deviation. With one level the "
        "strengths descend on the training loss, with two (GSEBO) on that of the "
        "validation nodes, which is why validation is no measure there: only the test "
        "curve is. The training loss includes the weight decay; the loss of test nodes "
        "is not recorded.",
    )
    for nodes, style in NODES.items():
        figure.add_line(nodes, f"{nodes} nodes", style)
    rows = " and ".join(map(backbone_title, plan.rows))
    for dataset in plan.datasets:
        figure.add_group(f"{rows} on {dataset_title(dataset)}", columns=3)
        cards = figure.groups[-1].cards
        for cell, results in evidence.results.items():
            if cell.dataset != dataset:
                continue
            setting = f" ({cell.setting})" if cell.setting else ""
            title = f"{method_title(cell.method)}{setting}"
            if mean_curve(results, "train_loss") is None:
                figure.absent.append(f"{title}, {dataset_title(dataset)}")
                continue
            name = f"{figure.name}-{dataset}-{len(cards)}"
            figure.add_card(title, *_of_nodes(name, title, cell, results))
        if not cards:
            figure.absent.append(dataset_title(dataset))
    return figure.finished()


def _of_nodes(
    name: str, method: str, cell: Cell, results: Mapping[int, Result]
) -> Iterator[Panel]:
    for caption, columns in (("accuracy, %", _ACCURACY), ("loss", _LOSS)):
        title = (
            f"{caption.partition(',')[0].capitalize()} of {' and '.join(columns)} "
            f"nodes, {method} with {place_title(cell.row, cell.dataset, ' on ')}, "
            "against steps of the weights"
        )
        paint = _painter([(results, c, NODES[n], None) for n, c in columns.items()])
        svg = draw_svg(f"{name}-{caption[:4]}", title, paint, height=200)
        tags = Tags((cell.method,), (cell.row,), (cell.dataset,))
        yield Panel(svg, tags, caption)


def _painter(curves: Sequence[_Curve]) -> Callable[[Axes], None]:
    def paint(axes: Axes) -> None:
        for results, column, style, method in curves:
            curve = mean_curve(results, column)
            assert curve is not None
            steps, mean, spread = curve
            factor = 1.0 if column.endswith("loss") else 100.0
            band(axes, (steps, factor * mean, factor * spread), style, method)
        axes.set_xlabel("steps of the weights")
        axes.margins(x=0.01)

    return paint
