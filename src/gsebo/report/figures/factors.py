"""Accuracy against one parameter at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes

from gsebo.experiments import Cell, Planned
from gsebo.report.evidence import Evidence, outline
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
from gsebo.report.figures.series import level, points
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.tables.summary import Summary


@dataclass(frozen=True)
class Factor:
    """A parameter that was varied.

    Attributes:
        name: Of the parameter, or what sets another method apart.
        values: What it was, in order, and whose cell has the results.
    """

    name: str
    values: tuple[tuple[Any, Cell], ...]


def factors(evidence: Evidence) -> Drawing | None:
    """One card for each parameter, one panel in it for each dataset."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    cards, absent = [], []
    for number, factor in enumerate(varied(evidence.plan.trials)):
        panels = [
            panel
            for dataset in plan.datasets
            if (
                panel := _panel(evidence, f"{name}-{number}-{dataset}", factor, dataset)
            )
        ]
        if panels:
            cards.append(Card(factor.name, tuple(panels)))
        else:
            absent.append(factor.name)
    methods = dict.fromkeys(cell.method for cell in evidence.results)
    legend = method_legend(name, methods)
    reading = (
        "Test accuracy in percent. Points are means over seeds, bars one standard "
        "deviation; the line across is vanilla. The places along the axis are evenly "
        "spaced, and each panel has its own vertical axis."
    )
    return drawing(legend, [CardGroup("", tuple(cards))], reading, absent)


def varied(trials: Sequence[Planned]) -> list[Factor]:
    """Find what was varied, one parameter at a time.

    A method without such a parameter that is not vanilla stands beside the first
    method's trial with all parameters at their defaults.
    """
    found: dict[str, dict[tuple[str, Cell], None]] = {}
    own = [one for one in trials if len(one.candidate.parameters) == 1]
    for one in own:
        ((name, value),) = one.candidate.parameters.items()
        found.setdefault(name, {})[_word(value), one.cell] = None
    plain = [one for one in own if not one.trial.parameters]
    other = (one for one in trials if not one.candidate.parameters and one.cell.setting)
    for setting, members in groupby(other, key=lambda one: one.cell.setting):
        beside = found.setdefault(setting, {})
        cells = [one.cell for one in members]
        for cell in [*(one.cell for one in plain), *cells]:
            if not any(
                known.dataset == cell.dataset and known.method == cell.method
                for _, known in beside
            ):
                beside[method_title(cell.method), cell] = None
    return [Factor(name, tuple(values)) for name, values in found.items()]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _panel(evidence: Evidence, name: str, factor: Factor, dataset: str) -> Panel | None:
    here = [(value, cell) for value, cell in factor.values if cell.dataset == dataset]
    summaries = [Summary.of(evidence.accuracies(cell)) for _, cell in here]
    if not any(summaries):
        return None
    rows = {cell.row for _, cell in here}
    vanilla = [
        Summary.of(evidence.accuracies(cell))
        for cell in evidence.results
        if cell.method == "vanilla" and cell.dataset == dataset and cell.row in rows
    ]
    numbers = all(value.replace(".", "").isdigit() for value, _ in here)
    methods = tuple(dict.fromkeys(cell.method for _, cell in here))

    def paint(axes: Axes) -> None:
        for summary in vanilla:
            level(axes, summary, method_look("vanilla"))
        for method in methods:
            at = [i for i, (_, cell) in enumerate(here) if cell.method == method]
            line = [summaries[i] for i in at]
            points(axes, at, line, method_look(method), joined=numbers)
        axes.set_xticks(range(len(here)), [value for value, _ in here])
        axes.set_xlim(-0.5, len(here) - 0.5)

    place = f"{backbone_title(min(rows))}, {dataset_title(dataset)}"
    title = f"Test accuracy against {factor.name}, {place}"
    svg = draw_svg(name, title, paint, height=130, margins={"bottom": 22})
    return Panel(
        svg, Tags(methods, tuple(sorted(rows)), (dataset,)), dataset_title(dataset)
    )
