"""What became of edges within classes, between classes, and of false ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gsebo.data import NoiseSpec
from gsebo.experiments import Cell
from gsebo.experiments.result import BINS
from gsebo.report.evidence import Evidence, PooledEdges, edge_groups, outline
from gsebo.report.figures.drawing import Drawing, Panel, Tags, draw_svg
from gsebo.report.figures.robustness import short_count
from gsebo.report.figures.series import EDGES, points
from gsebo.report.names import place_title

_Groups = dict[str, PooledEdges]


def strengths(evidence: Evidence) -> Drawing | None:
    """Histograms for each network and dataset, and the mean as false edges are added.

    Other noise is left out.
    """
    plan = outline(evidence.recipe)
    figure = Drawing(
        evidence.recipe.name,
        "The strength of an edge is shown relative to its start: 1 is unchanged, 0 is "
        "gone. Layers are pooled. In the histograms each group's bars add up to "
        f"100 %, on a logarithmic axis; the last bar has all from {BINS[-1]:g} on.",
    )
    known: dict[Cell, _Groups] = {}
    for cell, results in evidence.results.items():
        if cell.noise not in plan.false_edges:
            continue
        if found := edge_groups(results):
            known[cell] = found
        else:
            noise = f", {cell.noise} false edges" if cell.noise else ""
            figure.absent.append(f"{place_title(cell.row, cell.dataset)}{noise}")
    for group, style in EDGES.items():
        if any(group in found for found in known.values()):
            words = "false edges" if group == "false" else f"edges {group} classes"
            figure.add_line(group, words, style)
    counts = {0: "without"}
    if most := max(plan.false_edges):
        counts[most] = f"with {most}"
    for count, words in counts.items():
        figure.add_group(f"Strengths {words} false edges")
        for cell in known:
            if cell.noise == count:
                _add_histogram(figure, cell, known[cell])
    figure.add_group("Mean strength as false edges are added")
    places: dict[tuple[str, str], dict[NoiseSpec, _Groups]] = {}
    for cell, found in known.items():
        places.setdefault((cell.row, cell.dataset), {})[cell.noise] = found
    for place, by_noise in places.items():
        if len(by_noise) > 1:
            _add_means(figure, place, plan.false_edges, by_noise)
    return figure.finished()


def _add_histogram(figure: Drawing, cell: Cell, found: _Groups) -> None:
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
    name = f"{figure.name}-bars-{cell.row}-{cell.dataset}-{cell.noise}"
    svg = draw_svg(name, title, paint, height=190)
    means = ", ".join(f"{group} {one.ratio.mean:.3f}" for group, one in found.items())
    gone = ", ".join(f"{group} {one.zero:.1f} %" for group, one in found.items())
    tags = Tags((cell.method,), (cell.row,), (cell.dataset,))
    panel = Panel(svg, tags, "percent of the group's edges")
    figure.add_card(place, panel, note=f"Mean: {means}. Gone: {gone}.")


def _add_means(
    figure: Drawing,
    place: tuple[str, str],
    counts: Sequence[int],
    by_noise: Mapping[NoiseSpec, _Groups],
) -> None:
    def paint(axes: Axes) -> None:
        for group, style in EDGES.items():
            found = (by_noise.get(count, {}) for count in counts)
            line = [one[group].ratio if group in one else None for one in found]
            points(axes, range(len(line)), line, style)
        axes.set_xticks(range(len(counts)), list(map(short_count, counts)))
        axes.set_xlabel("false edges added")

    row, dataset = place
    words = place_title(row, dataset)
    title = f"Mean strength relative to the start against false edges, {words}"
    svg = draw_svg(f"{figure.name}-mean-{row}-{dataset}", title, paint, height=190)
    tags = Tags(("gsebo",), (row,), (dataset,))
    figure.add_card(words, Panel(svg, tags, "mean strength / start"))
