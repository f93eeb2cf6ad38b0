"""Accuracy as false edges are added, and what GSEBO gains over vanilla."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence, Outline, measured_by, outline
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
from gsebo.report.figures.look import PAPER, Look, method_look
from gsebo.report.figures.series import dodged
from gsebo.report.figures.svg import draw_svg, tag
from gsebo.report.names import (
    backbone_title,
    dataset_title,
    gain_place,
    method_title,
    published_gain,
)
from gsebo.report.tables.entry import Entry, entries
from gsebo.report.tables.summary import Summary


def robustness(evidence: Evidence) -> Drawing | None:
    """One panel for each network, and one with all gains."""
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    cards, absent = [], []
    for dataset in plan.datasets:
        for row in plan.rows:
            title = f"{backbone_title(row)}, {dataset_title(dataset)}"
            panel = _accuracy(evidence, plan, row, dataset)
            if panel is None:
                absent.append(title)
            else:
                cards.append(Card(title, (panel,)))
    legend = method_legend(name, plan.methods)
    legend.append(legend_of(f"{name}-legend-paper", "paper's gain", PAPER))
    groups = [CardGroup("Test accuracy", tuple(cards)), _gain_group(evidence, plan)]
    reading = (
        "Points are means over seeds, bars one standard deviation; methods are moved "
        "apart a little along the axis, whose places are evenly spaced."
    )
    return drawing(legend, groups, reading, absent)


def short_count(count: int) -> str:
    """Write a number of edges for an axis.

    >>> short_count(500), short_count(20000)
    ('500', '20k')
    """
    return f"{count // 1000}k" if count and count % 1000 == 0 else str(count)


def _accuracy(
    evidence: Evidence, plan: Outline, row: str, dataset: str
) -> Panel | None:
    lines: dict[str, list[Summary | None]] = {}
    for cell in evidence.results:
        if (cell.row, cell.dataset) == (
            row,
            dataset,
        ) and cell.noise in plan.false_edges:
            line = lines.setdefault(cell.method, [None] * len(plan.false_edges))
            summary = Summary.of(evidence.accuracies(cell))
            line[plan.false_edges.index(cell.noise)] = summary
    lines = {method: line for method, line in lines.items() if any(line)}
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        dodged(
            axes,
            [
                (line, method_look(method), tag("method", method))
                for method, line in lines.items()
            ],
        )
        _count_axis(axes, plan.false_edges)

    words = ", ".join(method_title(method) for method in lines)
    title = (
        f"Test accuracy of {words} with {backbone_title(row)} on "
        f"{dataset_title(dataset)} against the number of false edges"
    )
    svg = draw_svg(f"{evidence.recipe.name}-{row}-{dataset}", title, paint, height=230)
    return Panel(svg, Tags(tuple(lines), (row,), (dataset,)), "test accuracy, %")


def _gain_group(evidence: Evidence, plan: Outline) -> CardGroup:
    known = [
        entry
        for cell, entry in entries(evidence).items()
        if cell.method == "gsebo" and not cell.setting and entry.gain is not None
    ]
    cards = [
        _gain_card(evidence.recipe.name, row, dataset, plan.false_edges, here)
        for dataset in plan.datasets
        for row in plan.rows
        if (
            here := [
                one
                for one in known
                if (one.cell.row, one.cell.dataset) == (row, dataset)
            ]
        )
    ]
    return CardGroup(
        "What GSEBO gains over vanilla, in percent of vanilla", tuple(cards)
    )


def _gain_card(
    name: str, row: str, dataset: str, noise: tuple[int, ...], known: Sequence[Entry]
) -> Card:
    gains = {
        count: one.gain
        for one in known
        if (count := one.cell.noise) in noise and one.gain is not None
    }
    paper = published_gain(row)
    place_dataset, place_noise = gain_place()
    if place_dataset != dataset or place_noise not in noise:
        paper = None
    look = method_look("gsebo")

    def paint(axes: Axes) -> None:
        at = [noise.index(count) for count in gains]
        axes.bar(at, list(gains.values()), width=0.6, color=look.colour)
        for place, gain in zip(at, gains.values(), strict=True):
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
        _count_axis(axes, noise)

    title = (
        f"Relative gain of GSEBO over vanilla with {backbone_title(row)} on "
        f"{dataset_title(dataset)}, in percent, against the number of false edges"
    )
    svg = draw_svg(f"{name}-gain-{row}-{dataset}", title, paint, height=200)
    tags = Tags(("gsebo", "vanilla"), (row,), (dataset,))
    heading = f"{backbone_title(row)}, {dataset_title(dataset)}"
    caption = "relative gain, %"
    if paper is not None:
        caption += f"; paper {paper:+.1f} at {short_count(place_noise)}"
    return Card(heading, (Panel(svg, tags, caption),))


def _count_axis(axes: Axes, noise: Sequence[int]) -> None:
    axes.set_xticks(range(len(noise)), [short_count(count) for count in noise])
    axes.set_xlim(-0.5, len(noise) - 0.5)
    axes.set_xlabel("false edges added")


_NO_EDGES = "mlp"
"""The network that edges do not change: it stands beside each of the others."""


@dataclass(frozen=True)
class _Line:
    """A series of a panel.

    Attributes:
        method: Name of the method.
        with_edges: Whether its network is the panel's own.
    """

    method: str
    with_edges: bool

    @property
    def label(self) -> str:
        title = method_title(self.method)
        return title if self.with_edges else f"{backbone_title(_NO_EDGES)}, {title}"

    @property
    def look(self) -> Look:
        return method_look(self.method if self.with_edges else _NO_EDGES)

    @classmethod
    def of(cls, cell: Cell) -> "_Line":
        return cls(cell.method, cell.row != _NO_EDGES)


def robustness_extended(evidence: Evidence) -> Drawing | None:
    """One group of panels for each network and dataset, with one for each kind.

    Of cells that differ by their setting alone, those of the recipe's first are drawn.
    """
    plan = outline(evidence.recipe)
    networks = [row for row in plan.rows if row != _NO_EDGES] or [_NO_EDGES]
    cells = _drawn(evidence.results)
    groups, absent = [], []
    planned = evidence.plan.cells()
    for dataset in plan.datasets:
        for row in networks:
            here = {c.noise for c in planned if (c.row, c.dataset) == (row, dataset)}
            if len(here) < 2:
                # There is no noise for it to grow.
                continue
            cards = []
            place = f"{backbone_title(row)}, {dataset_title(dataset)}"
            for kind, levels in plan.noise.items():
                title = NOISE_KINDS[kind].words
                panel = _panel(evidence, cells, (row, dataset), kind, levels)
                if panel is None:
                    absent.append(f"{place}, {title}")
                else:
                    cards.append(Card(title, (panel,)))
            groups.append(CardGroup(place, tuple(cards)))
    name = evidence.recipe.name
    legend = [
        legend_of(
            f"{name}-legend-{number}", line.label, line.look, tags=Tags((line.method,))
        )
        for number, line in enumerate(dict.fromkeys(map(_Line.of, cells)))
    ]
    reading = (
        "Test accuracy in percent. Points are means over seeds, bars one standard "
        "deviation; methods are moved apart a little along the axis, whose places are "
        "evenly spaced. 0 is the same graph in all panels."
    )
    return drawing(legend, groups, reading, absent)


def _drawn(cells: Iterable[Cell]) -> list[Cell]:
    setting: dict[tuple[str, str, str], str] = {}
    return [
        cell
        for cell in cells
        if setting.setdefault((cell.row, cell.method, cell.dataset), cell.setting)
        == cell.setting
    ]


def _panel(
    evidence: Evidence,
    cells: Iterable[Cell],
    place: tuple[str, str],
    kind: str,
    levels: tuple[NoiseSpec, ...],
) -> Panel | None:
    row, dataset = place
    found: dict[_Line, list[Summary | None]] = {}
    for cell in cells:
        here = cell.row in (row, _NO_EDGES) and cell.dataset == dataset
        if here and cell.noise in levels:
            line = found.setdefault(_Line.of(cell), [None] * len(levels))
            line[levels.index(cell.noise)] = Summary.of(evidence.accuracies(cell))
    found = {line: points for line, points in found.items() if any(points)}
    if not found:
        return None

    def paint(axes: Axes) -> None:
        dodged(
            axes,
            [
                (points, line.look, tag("method", line.method))
                for line, points in found.items()
            ],
        )
        axes.set_xticks(range(len(levels)), [_tick(level) for level in levels])
        axes.set_xlim(-0.5, len(levels) - 0.5)
        unit = ", %" if NOISE_KINDS[kind].in_percent else " added"
        axes.set_xlabel(f"{NOISE_KINDS[kind].words}{unit}")

    methods = tuple(dict.fromkeys(line.method for line in found))
    words = "; ".join(line.label for line in found)
    title = (
        f"Test accuracy of {words} with {backbone_title(row)} on "
        f"{dataset_title(dataset)} against {measured_by(kind)}"
    )
    name = f"{evidence.recipe.name}-{kind}-{row}-{dataset}"
    return Panel(
        draw_svg(name, title, paint, height=230),
        Tags(methods, (row,), (dataset,)),
        "test accuracy, %",
    )


def _tick(noise: NoiseSpec) -> str:
    return short_count(noise_parts(noise)[1])
