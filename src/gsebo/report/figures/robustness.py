"""Accuracy as noise grows, and what GSEBO gains over vanilla."""

from collections.abc import Mapping, Sequence
from itertools import product

from matplotlib.axes import Axes

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.data.noise.registry import INTER_CLASS
from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence, Summary, measured_by, outline
from gsebo.report.figures.drawing import Drawing, Panel, Tags, draw_svg
from gsebo.report.figures.series import (
    PAPER,
    LineStyle,
    method_style,
    over_levels,
    ticks,
)
from gsebo.report.names import gain_place, method_title, place_title, published_gain
from gsebo.report.tables.entry import entries

# The network that edges do not change: it stands beside each of the others.
_NO_EDGES = "mlp"


# Label, style and method of a series.
_Line = tuple[str, LineStyle, str]


def _line(method: str, beside: bool = False) -> _Line:
    title = method_title(method)
    label = f"MLP, {title}" if beside else title
    return label, method_style(_NO_EDGES if beside else method), method


def robustness(evidence: Evidence) -> Drawing | None:
    """One panel for each network, and one with all gains; other noise is left out."""
    plan = outline(evidence.recipe)
    figure = Drawing(
        evidence.recipe.name,
        "Points are means over seeds, bars one standard deviation; methods are moved "
        "apart a little along the axis, whose places are evenly spaced.",
    )
    figure.add_methods(plan.methods)
    figure.add_line("paper", "paper's gain", PAPER)
    figure.add_group(f"Test {evidence.measured()}")
    lines = {cell: _line(cell.method) for cell in evidence.results}
    noise = (INTER_CLASS, plan.false_edges)
    for dataset, row in product(plan.datasets, plan.rows):
        place = place_title(row, dataset)
        if panel := _panel(evidence, lines, (row,), dataset, *noise, joint=", "):
            figure.add_card(place, panel)
        else:
            figure.absent.append(place)
    figure.add_group("What GSEBO gains over vanilla, in percent of vanilla")
    gains: dict[tuple[str, str], dict[NoiseSpec, float]] = {}
    for cell, entry in entries(evidence).items():
        if cell.method == "gsebo" and not cell.setting and entry.gain is not None:
            here = gains.setdefault((cell.dataset, cell.row), {})
            if cell.noise in plan.false_edges:
                here[cell.noise] = entry.gain
    for dataset, row in product(plan.datasets, plan.rows):
        if (dataset, row) in gains:
            here = gains[dataset, row]
            panel = _gain_panel(figure.name, row, dataset, plan.false_edges, here)
            figure.add_card(place_title(row, dataset), panel)
    return figure.finished()


def robustness_extended(evidence: Evidence) -> Drawing | None:
    """One group of panels for each network and dataset, with one for each kind.

    Of cells that differ by their setting alone, those of the recipe's first are drawn.
    """
    plan = outline(evidence.recipe)
    figure = Drawing(
        evidence.recipe.name,
        f"Test {evidence.measured('{0.title} {0.unit}')}. "
        "Points are means over seeds, bars one standard deviation; methods are moved "
        "apart a little along the axis, whose places are evenly spaced. 0 is the same "
        "graph in all panels.",
    )
    setting: dict[tuple[str, str, str], str] = {}
    lines = {
        cell: _line(cell.method, beside=cell.row == _NO_EDGES)
        for cell in evidence.results
        if setting.setdefault((cell.row, cell.method, cell.dataset), cell.setting)
        == cell.setting
    }
    for number, line in enumerate(dict.fromkeys(lines.values())):
        figure.add_line(str(number), *line)
    planned = evidence.plan.cells()
    own = [row for row in plan.rows if row != _NO_EDGES] or [_NO_EDGES]
    for dataset, row in product(plan.datasets, own):
        if len({c.noise for c in planned if (c.row, c.dataset) == (row, dataset)}) < 2:
            # There is no noise for it to grow.
            continue
        figure.add_group(place_title(row, dataset))
        rows = (row, _NO_EDGES)
        for kind, levels in plan.noise.items():
            title = NOISE_KINDS[kind].words
            if panel := _panel(evidence, lines, rows, dataset, kind, levels, kind):
                figure.add_card(title, panel)
            else:
                figure.absent.append(f"{place_title(row, dataset)}, {title}")
    return figure.finished()


def _panel(
    evidence: Evidence,
    lines: Mapping[Cell, _Line],
    rows: tuple[str, ...],
    dataset: str,
    kind: str,
    levels: Sequence[NoiseSpec],
    prefix: str = "",
    joint: str = "; ",
) -> Panel | None:
    """Accuracies of a network on a dataset by noise, and of those beside it."""
    found: dict[_Line, list[Summary | None]] = {}
    for cell, line in lines.items():
        if cell.row in rows and cell.dataset == dataset and cell.noise in levels:
            shown = found.setdefault(line, [None] * len(levels))
            shown[levels.index(cell.noise)] = evidence.summary(cell)
    found = {line: summaries for line, summaries in found.items() if any(summaries)}
    if not found:
        return None

    def paint(axes: Axes) -> None:
        drawn = [(style, method, each) for (_, style, method), each in found.items()]
        unit = ", %" if NOISE_KINDS[kind].in_percent else " added"
        words = f"{NOISE_KINDS[kind].words}{unit}"
        over_levels(axes, drawn, list(map(short_count, levels)), words)

    metric = evidence.metric(dataset)
    title = (
        f"Test {metric.title} of {joint.join(label for label, *_ in found)} with "
        f"{place_title(rows[0], dataset, ' on ')} against {measured_by(kind)}"
    )
    name = "-".join(filter(None, (evidence.recipe.name, prefix, rows[0], dataset)))
    methods = tuple(dict.fromkeys(method for *_, method in found))
    tags = Tags(methods, rows[:1], (dataset,))
    svg = draw_svg(name, title, paint, height=230)
    return Panel(svg, tags, f"test {metric.axis}")


def _gain_panel(
    name: str,
    row: str,
    dataset: str,
    noise: tuple[int, ...],
    here: Mapping[NoiseSpec, float],
) -> Panel:
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
