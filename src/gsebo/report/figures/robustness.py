"""Accuracy as false edges are added, and what GSEBO gains over vanilla."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from gsebo.report.entry import Entry, entries
from gsebo.report.evidence import Evidence
from gsebo.report.figures.drawing import (
    Card,
    Drawing,
    Group,
    Panel,
    Tags,
    drawing,
    legend_of,
    method_legend,
)
from gsebo.report.figures.look import PAPER, method_look
from gsebo.report.figures.series import dodged
from gsebo.report.figures.svg import draw_svg, tag
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.outline import Outline, outline
from gsebo.report.published import gain_place, published_gain
from gsebo.report.summary import Summary


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
    groups = [Group("Test accuracy", tuple(cards)), _gain_group(evidence, plan)]
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


def _gain_group(evidence: Evidence, plan: Outline) -> Group:
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
    return Group("What GSEBO gains over vanilla, in percent of vanilla", tuple(cards))


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
