"""Accuracy as each kind of noise grows, one panel for each kind."""

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.axes import Axes

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence
from gsebo.report.figures.drawing import (
    Card,
    Drawing,
    Group,
    Panel,
    Tags,
    drawing,
    legend_of,
)
from gsebo.report.figures.look import Look, method_look
from gsebo.report.figures.robustness import short_count
from gsebo.report.figures.series import dodged
from gsebo.report.figures.svg import draw_svg, tag
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.noise_levels import measured_by
from gsebo.report.outline import outline
from gsebo.report.summary import Summary

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
            groups.append(Group(place, tuple(cards)))
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
