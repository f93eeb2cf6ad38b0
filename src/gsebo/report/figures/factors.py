"""Accuracy against one parameter at a time."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes

from gsebo.data import NoiseSpec, noise_in_words
from gsebo.experiments import Cell, Planned
from gsebo.report.evidence import Evidence
from gsebo.report.figures.drawing import Drawing, Panel, Tags, draw_svg
from gsebo.report.figures.series import method_style, points, ticks
from gsebo.report.names import dataset_title, method_title, place_title

# What a parameter was, in order, and whose cell has the results.
FactorValues = list[tuple[str, Cell]]


def factors(evidence: Evidence) -> Drawing | None:
    """One card for each parameter, one panel in it for each dataset and its noise."""
    methods = dict.fromkeys(cell.method for cell in evidence.results)
    line = "; the line across is vanilla" if "vanilla" in methods else ""
    figure = Drawing(
        evidence.recipe.name,
        f"Test {evidence.measured('{0.title} {0.unit}')}. "
        f"Points are means over seeds, bars one standard deviation{line}. The places "
        "along the axis are evenly spaced, and each panel has its own vertical axis.",
    )
    figure.add_methods(methods)
    figure.add_group("")
    graphs = dict.fromkeys(map(_graph, evidence.results))
    for number, (factor, values) in enumerate(varied(evidence.plan.trials).items()):
        panels = []
        for place, graph in enumerate(graphs):
            here = [(value, cell) for value, cell in values if _graph(cell) == graph]
            if any(evidence.summary(cell) for _, cell in here):
                name = f"{figure.name}-{number}-{place}"
                panels.append(_panel(evidence, name, factor, here))
        if panels:
            figure.add_card(factor, *panels)
        else:
            figure.absent.append(factor)
    return figure.finished()


def varied(trials: Sequence[Planned]) -> dict[str, FactorValues]:
    """Find what was varied, one parameter at a time, by its name.

    A method without such a parameter that is not vanilla stands beside the first
    method's trial with all parameters at their defaults, by what sets it apart.
    """
    found: dict[str, dict[tuple[str, Cell], None]] = {}
    own = [one for one in trials if len(one.candidate.parameters) == 1]
    for one in own:
        ((name, value),) = one.candidate.parameters.items()
        found.setdefault(name, {})[_word(value), one.cell] = None
    plain = [one.cell for one in own if not one.trial.parameters]
    other = (one for one in trials if not one.candidate.parameters and one.cell.setting)
    for setting, members in groupby(other, key=lambda one: one.cell.setting):
        beside = found.setdefault(setting, {})
        for cell in [*plain, *(one.cell for one in members)]:
            if not any(
                _graph(known) == _graph(cell) and known.method == cell.method
                for _, known in beside
            ):
                beside[method_title(cell.method), cell] = None
    return {name: list(values) for name, values in found.items()}


def _graph(cell: Cell) -> tuple[str, NoiseSpec]:
    return cell.dataset, cell.noise


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _panel(evidence: Evidence, name: str, factor: str, here: FactorValues) -> Panel:
    rows = sorted({cell.row for _, cell in here})
    dataset, noise = graph = _graph(here[0][1])
    words = [value for value, _ in here]
    methods = tuple(dict.fromkeys(cell.method for _, cell in here))

    def paint(axes: Axes) -> None:
        for cell in evidence.results:
            place = _graph(cell) == graph and cell.row in rows
            if cell.method == "vanilla" and place and (one := evidence.summary(cell)):
                style = method_style("vanilla")
                axes.axhline(one.mean, color=style.colour, linestyle=style.line)
                ends = (one.mean - one.std, one.mean + one.std)
                axes.axhspan(*ends, color=style.colour, alpha=0.12, linewidth=0)
        numbers = all(word.replace(".", "").isdigit() for word in words)
        for method in methods:
            at = [i for i, (_, cell) in enumerate(here) if cell.method == method]
            line = [evidence.summary(here[i][1]) for i in at]
            points(axes, at, line, method_style(method), joined=numbers)
        ticks(axes, words)

    measured = evidence.metric(dataset).title
    added = f", {noise_in_words(noise)}" if noise else ""
    title = f"Test {measured} against {factor}, {place_title(rows[0], dataset)}{added}"
    svg = draw_svg(name, title, paint, height=130, margins={"bottom": 22})
    tags = Tags(methods, tuple(rows), (dataset,))
    return Panel(svg, tags, f"{dataset_title(dataset)}{added}")
