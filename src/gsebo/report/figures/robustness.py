"""Accuracy as noise grows, and what GSEBO gains over vanilla."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from matplotlib.axes import Axes

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.data.noise.registry import INTER_CLASS
from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence, Outline, Summary, measured_by, outline
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
from gsebo.report.figures.series import PAPER, LineStyle, method_style, points, ticks
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import (
    backbone_title,
    gain_place,
    method_title,
    place_title,
    published_gain,
)
from gsebo.report.tables.entry import entries

# How far lines are moved apart.
_DODGE = 0.07
# The network that edges do not change: it stands beside each of the others.
_NO_EDGES = "mlp"


@dataclass(frozen=True)
class _Line:
    method: str
    # Whether its network is the one without edges, beside the panel's own.
    beside: bool = False

    @property
    def label(self) -> str:
        title = method_title(self.method)
        return f"{backbone_title(_NO_EDGES)}, {title}" if self.beside else title

    @property
    def style(self) -> LineStyle:
        return method_style(_NO_EDGES if self.beside else self.method)


def robustness(evidence: Evidence) -> Drawing | None:
    """One panel for each network, and one with all gains; other noise is left out."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    cards, absent = [], []
    for dataset, row in product(plan.datasets, plan.rows):
        here = {
            cell: _Line(cell.method)
            for cell in evidence.results
            if (cell.row, cell.dataset) == (row, dataset)
        }
        place = place_title(row, dataset)
        noise = (INTER_CLASS, plan.false_edges)
        if panel := _panel(evidence, here, (row, dataset), *noise, joint=", "):
            cards.append(Card(place, (panel,)))
        else:
            absent.append(place)
    legend = method_legend(name, plan.methods)
    legend.append(legend_of(f"{name}-legend-paper", "paper's gain", PAPER))
    gains = "What GSEBO gains over vanilla, in percent of vanilla"
    groups = [
        CardGroup("Test accuracy", tuple(cards)),
        CardGroup(gains, tuple(_gain_cards(evidence, plan))),
    ]
    reading = (
        "Points are means over seeds, bars one standard deviation; methods are moved "
        "apart a little along the axis, whose places are evenly spaced."
    )
    return drawing(legend, groups, reading, absent)


def robustness_extended(evidence: Evidence) -> Drawing | None:
    """One group of panels for each network and dataset, with one for each kind.

    Of cells that differ by their setting alone, those of the recipe's first are drawn.
    """
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    networks = [row for row in plan.rows if row != _NO_EDGES] or [_NO_EDGES]
    setting: dict[tuple[str, str, str], str] = {}
    lines = {
        cell: _Line(cell.method, beside=cell.row == _NO_EDGES)
        for cell in evidence.results
        if setting.setdefault((cell.row, cell.method, cell.dataset), cell.setting)
        == cell.setting
    }
    groups, absent = [], []
    planned = evidence.plan.cells()
    for dataset, row in product(plan.datasets, networks):
        if len({c.noise for c in planned if (c.row, c.dataset) == (row, dataset)}) < 2:
            # There is no noise for it to grow.
            continue
        here = {
            cell: line
            for cell, line in lines.items()
            if cell.row in (row, _NO_EDGES) and cell.dataset == dataset
        }
        cards = []
        place = place_title(row, dataset)
        for kind, levels in plan.noise.items():
            title = NOISE_KINDS[kind].words
            if panel := _panel(evidence, here, (row, dataset), kind, levels, kind):
                cards.append(Card(title, (panel,)))
            else:
                absent.append(f"{place}, {title}")
        groups.append(CardGroup(place, tuple(cards)))
    legend = [
        legend_of(f"{name}-legend-{number}", line.label, line.style, line.method)
        for number, line in enumerate(dict.fromkeys(lines.values()))
    ]
    reading = (
        "Test accuracy in percent. Points are means over seeds, bars one standard "
        "deviation; methods are moved apart a little along the axis, whose places are "
        "evenly spaced. 0 is the same graph in all panels."
    )
    return drawing(legend, groups, reading, absent)


def _panel(
    evidence: Evidence,
    lines: Mapping[Cell, _Line],
    place: tuple[str, str],
    kind: str,
    levels: Sequence[NoiseSpec],
    prefix: str = "",
    joint: str = "; ",
) -> Panel | None:
    """Accuracies of some cells in the place of a network and a dataset, by noise."""
    found: dict[_Line, list[Summary | None]] = {}
    for cell, line in lines.items():
        if cell.noise in levels:
            shown = found.setdefault(line, [None] * len(levels))
            shown[levels.index(cell.noise)] = evidence.summary(cell)
    found = {line: summaries for line, summaries in found.items() if any(summaries)}
    if not found:
        return None

    def paint(axes: Axes) -> None:
        for number, (line, summaries) in enumerate(found.items()):
            shift = _DODGE * (number - (len(found) - 1) / 2)
            at = [place + shift for place in range(len(levels))]
            points(axes, at, summaries, line.style, line.method)
        unit = ", %" if NOISE_KINDS[kind].in_percent else " added"
        words = f"{NOISE_KINDS[kind].words}{unit}"
        ticks(axes, list(map(short_count, levels)), words)

    title = (
        f"Test accuracy of {joint.join(line.label for line in found)} with "
        f"{place_title(*place, ' on ')} against {measured_by(kind)}"
    )
    name = "-".join(filter(None, (evidence.recipe.name, prefix, *place)))
    methods = tuple(dict.fromkeys(line.method for line in found))
    tags = Tags(methods, place[:1], place[1:])
    return Panel(draw_svg(name, title, paint, height=230), tags, "test accuracy, %")


def _gain_cards(evidence: Evidence, plan: Outline) -> Iterator[Card]:
    gains: dict[tuple[str, str], dict[NoiseSpec, float]] = {}
    for cell, entry in entries(evidence).items():
        if cell.method == "gsebo" and not cell.setting and entry.gain is not None:
            here = gains.setdefault((cell.row, cell.dataset), {})
            if cell.noise in plan.false_edges:
                here[cell.noise] = entry.gain
    for dataset, row in product(plan.datasets, plan.rows):
        if (row, dataset) in gains:
            panel = _gain_panel(evidence.recipe.name, plan, row, dataset, gains)
            yield Card(place_title(row, dataset), (panel,))


def _gain_panel(
    name: str,
    plan: Outline,
    row: str,
    dataset: str,
    gains: Mapping[tuple[str, str], Mapping[NoiseSpec, float]],
) -> Panel:
    noise, here = plan.false_edges, gains[row, dataset]
    place_dataset, place_noise = gain_place()
    printed = place_dataset == dataset and place_noise in noise
    paper = published_gain(row) if printed else None

    def paint(axes: Axes) -> None:
        at = [noise.index(count) for count in here]
        axes.bar(at, list(here.values()), width=0.6, color=method_style("gsebo").colour)
        for place, gain in zip(at, here.values(), strict=True):
            axes.annotate(
                f"{gain:+.1f}".replace("-", "\N{MINUS SIGN}"),
                (place, max(gain, 0)),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=10,
            )
        if paper is not None:
            last = noise.index(place_noise)
            ends = (last - 0.45, last + 0.45)
            axes.plot(ends, (paper, paper), color=PAPER.colour, linewidth=2.5)
        axes.axhline(0, color="k", linewidth=0.8)
        axes.margins(y=0.18)
        ticks(axes, list(map(short_count, noise)), "false edges added")

    title = (
        "Relative gain of GSEBO over vanilla with "
        f"{place_title(row, dataset, ' on ')}, in percent, "
        "against the number of false edges"
    )
    svg = draw_svg(f"{name}-gain-{row}-{dataset}", title, paint, height=200)
    tags = Tags(("gsebo", "vanilla"), (row,), (dataset,))
    caption = "relative gain, %"
    if paper is not None:
        caption += f"; paper {paper:+.1f} at {short_count(place_noise)}"
    return Panel(svg, tags, caption)


def short_count(noise: NoiseSpec) -> str:
    """Write a level of noise for an axis.

    >>> short_count(500), short_count(20000), short_count("removed:30")
    ('500', '20k', '30')
    """
    _, count = noise_parts(noise)
    return f"{count // 1000}k" if count and count % 1000 == 0 else str(count)
