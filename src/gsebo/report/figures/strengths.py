"""What became of edges within classes, between classes, and of false ones."""

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
from gsebo.report.figures.look import EDGES
from gsebo.report.figures.robustness import short_count
from gsebo.report.figures.series import points
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import backbone_title, dataset_title

_WORDS = {
    "within": "edges within classes",
    "between": "edges between classes",
    "false": "false edges",
}


def strengths(evidence: Evidence) -> Drawing | None:
    """Histograms for each network and dataset, and the mean as false edges are added.

    Other noise is left out.
    """
    name = evidence.recipe.name
    plan = outline(evidence.recipe)
    groups = {
        cell: edge_groups(results)
        for cell, results in evidence.results.items()
        if cell.noise in plan.false_edges
    }
    absent = [
        f"{_title(cell)}, {cell.noise} false edges" if cell.noise else _title(cell)
        for cell, found in groups.items()
        if not found
    ]
    known = {cell: found for cell, found in groups.items() if found}
    clean = [cell for cell in known if not cell.noise]
    most = max(plan.false_edges)
    noisy = [cell for cell in known if cell.noise and cell.noise == most]
    parts = [
        CardGroup(
            "Strengths without false edges",
            tuple(_histogram(name, cell, known[cell]) for cell in clean),
        ),
        CardGroup(
            f"Strengths with {most} false edges",
            tuple(_histogram(name, cell, known[cell]) for cell in noisy),
        ),
        CardGroup(
            "Mean strength as false edges are added",
            tuple(_against_noise(name, plan, known)),
        ),
    ]
    legend = [
        legend_of(f"{name}-legend-{group}", _WORDS[group], look)
        for group, look in EDGES.items()
        if any(group in found for found in known.values())
    ]
    reading = (
        "The strength of an edge is shown relative to its start: 1 is unchanged, 0 is "
        "gone. Layers are pooled. In the histograms each group's bars add up to "
        f"100 %, on a logarithmic axis; the last bar has all from {BINS[-1]:g} on."
    )
    return drawing(legend, parts, reading, absent)


def _title(cell: Cell) -> str:
    return f"{backbone_title(cell.row)}, {dataset_title(cell.dataset)}"


def _tags(cell: Cell) -> Tags:
    return Tags((cell.method,), (cell.row,), (cell.dataset,))


def _histogram(name: str, cell: Cell, found: dict[str, PooledEdges]) -> Card:
    edges = [*BINS, 2 * BINS[-1] - BINS[-2]]

    def paint(axes: Axes) -> None:
        for group, one in found.items():
            look = EDGES[group]
            axes.stairs(
                np.maximum(one.share, 1e-3),
                edges,
                baseline=1e-3,
                color=look.colour,
                linestyle=look.line,
                linewidth=1.8,
            )
        axes.set_yscale("log")
        axes.set_ylim(0.01, 150)
        axes.set_yticks((0.01, 0.1, 1, 10, 100), ("0.01", "0.1", "1", "10", "100"))
        axes.minorticks_off()
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xticks((0, 0.5, 1, 1.5, 2), ("0", "0.5", "1", "1.5", "≥ 2"))
        axes.set_xlabel("strength / start")

    title = (
        f"Share of edges by strength relative to the start, {_title(cell)}, "
        f"{cell.noise} false edges"
    )
    svg = draw_svg(
        f"{name}-bars-{cell.row}-{cell.dataset}-{cell.noise}", title, paint, height=190
    )
    means = ", ".join(f"{group} {one.ratio.mean:.3f}" for group, one in found.items())
    gone = ", ".join(f"{group} {one.zero:.1f} %" for group, one in found.items())
    panel = Panel(svg, _tags(cell), "percent of the group's edges")
    return Card(_title(cell), (panel,), f"Mean: {means}. Gone: {gone}.")


def _against_noise(
    name: str, plan: Outline, known: dict[Cell, dict[str, PooledEdges]]
) -> list[Card]:
    places: dict[tuple[str, str], dict[NoiseSpec, dict[str, PooledEdges]]] = {}
    for cell, found in known.items():
        places.setdefault((cell.row, cell.dataset), {})[cell.noise] = found
    cards = []
    for (row, dataset), by_noise in places.items():
        if len(by_noise) < 2:
            continue

        def paint(
            axes: Axes, by_noise: dict[NoiseSpec, dict[str, PooledEdges]] = by_noise
        ) -> None:
            for group, look in EDGES.items():
                line = [
                    by_noise[count][group].ratio
                    if group in by_noise.get(count, {})
                    else None
                    for count in plan.false_edges
                ]
                points(axes, range(len(line)), line, look)
            counts = [short_count(count) for count in plan.false_edges]
            axes.set_xticks(range(len(counts)), counts)
            axes.set_xlabel("false edges added")

        place = f"{backbone_title(row)}, {dataset_title(dataset)}"
        title = f"Mean strength relative to the start against false edges, {place}"
        svg = draw_svg(f"{name}-mean-{row}-{dataset}", title, paint, height=190)
        panel = Panel(
            svg, Tags(("gsebo",), (row,), (dataset,)), "mean strength / start"
        )
        cards.append(Card(place, (panel,)))
    return cards
