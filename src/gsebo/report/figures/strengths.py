"""What became of edges within classes, between classes, and of false ones."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from gsebo.data import NoiseSpec
from gsebo.experiments import Cell
from gsebo.experiments.result import BINS
from gsebo.report.evidence import Evidence, Outline, PooledEdges, edge_groups, outline
from gsebo.report.figures.drawing import (
    Card,
    CardGroup,
    Drawing,
    Panel,
    Tags,
    drawing,
    legend_of,
)
from gsebo.report.figures.robustness import short_count
from gsebo.report.figures.series import EDGES, points
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import place_title

_WORDS = {
    "within": "edges within classes",
    "between": "edges between classes",
    "false": "false edges",
}
_Groups = dict[str, PooledEdges]


def strengths(evidence: Evidence) -> Drawing | None:
    """Histograms for each network and dataset, and the mean as false edges are added.

    Other noise is left out.
    """
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    most = max(plan.false_edges)
    known: dict[Cell, _Groups] = {}
    absent = []
    for cell, results in evidence.results.items():
        if cell.noise not in plan.false_edges:
            continue
        if found := edge_groups(results):
            known[cell] = found
        else:
            noise = f", {cell.noise} false edges" if cell.noise else ""
            absent.append(f"{place_title(cell.row, cell.dataset)}{noise}")
    groups = [
        CardGroup(title, tuple(_histogram(name, c, known[c]) for c in cells))
        for title, cells in (
            ("Strengths without false edges", [c for c in known if not c.noise]),
            (
                f"Strengths with {most} false edges",
                [c for c in known if c.noise and c.noise == most],
            ),
        )
    ]
    means = tuple(_against_noise(name, plan, known))
    groups.append(CardGroup("Mean strength as false edges are added", means))
    legend = [
        legend_of(f"{name}-legend-{group}", _WORDS[group], style)
        for group, style in EDGES.items()
        if any(group in found for found in known.values())
    ]
    reading = (
        "The strength of an edge is shown relative to its start: 1 is unchanged, 0 is "
        "gone. Layers are pooled. In the histograms each group's bars add up to "
        f"100 %, on a logarithmic axis; the last bar has all from {BINS[-1]:g} on."
    )
    return drawing(legend, groups, reading, absent)


def _histogram(name: str, cell: Cell, found: _Groups) -> Card:
    edges = [*BINS, 2 * BINS[-1] - BINS[-2]]

    def paint(axes: Axes) -> None:
        for group, one in found.items():
            axes.stairs(
                np.maximum(one.share, 1e-3),
                edges,
                baseline=1e-3,
                color=EDGES[group].colour,
                linestyle=EDGES[group].line,
                linewidth=1.8,
            )
        axes.set_yscale("log")
        axes.set_ylim(0.01, 150)
        axes.set_yticks((0.01, 0.1, 1, 10, 100), ("0.01", "0.1", "1", "10", "100"))
        axes.minorticks_off()
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xticks((0, 0.5, 1, 1.5, 2), ("0", "0.5", "1", "1.5", "≥ 2"))
        axes.set_xlabel("strength / start")

    place = place_title(cell.row, cell.dataset)
    title = (
        f"Share of edges by strength relative to the start, {place}, "
        f"{cell.noise} false edges"
    )
    name = f"{name}-bars-{cell.row}-{cell.dataset}-{cell.noise}"
    svg = draw_svg(name, title, paint, height=190)
    means = ", ".join(f"{group} {one.ratio.mean:.3f}" for group, one in found.items())
    gone = ", ".join(f"{group} {one.zero:.1f} %" for group, one in found.items())
    tags = Tags((cell.method,), (cell.row,), (cell.dataset,))
    panel = Panel(svg, tags, "percent of the group's edges")
    return Card(place, (panel,), f"Mean: {means}. Gone: {gone}.")


def _against_noise(
    name: str, plan: Outline, known: dict[Cell, _Groups]
) -> Iterator[Card]:
    places: dict[tuple[str, str], dict[NoiseSpec, _Groups]] = {}
    for cell, found in known.items():
        places.setdefault((cell.row, cell.dataset), {})[cell.noise] = found
    for (row, dataset), by_noise in places.items():
        if len(by_noise) < 2:
            continue

        def paint(axes: Axes, by_noise: dict[NoiseSpec, _Groups] = by_noise) -> None:
            for group, style in EDGES.items():
                found = (by_noise.get(count, {}) for count in plan.false_edges)
                line = [one[group].ratio if group in one else None for one in found]
                points(axes, range(len(line)), line, style)
            counts = [short_count(count) for count in plan.false_edges]
            axes.set_xticks(range(len(counts)), counts)
            axes.set_xlabel("false edges added")

        place = place_title(row, dataset)
        title = f"Mean strength relative to the start against false edges, {place}"
        svg = draw_svg(f"{name}-mean-{row}-{dataset}", title, paint, height=190)
        tags = Tags(("gsebo",), (row,), (dataset,))
        yield Card(place, (Panel(svg, tags, "mean strength / start"),))
