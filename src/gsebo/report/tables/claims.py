"""What others say: the paper's sums beside ours, and what is printed elsewhere.

Its sums are means of relative gains: of GSEBO over the plain network, by network and by
graph, and over each compared method on all graphs. They can be repeated from the
figures that it prints, and are computed here from ours in the same way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import mean

from gsebo.data import DATASETS
from gsebo.experiments import Cell
from gsebo.report.names import (
    backbone_title,
    dataset_title,
    method_title,
    published_elsewhere,
    published_summary,
)
from gsebo.report.tables.entry import Entry
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Table,
    Value,
    lay_out,
)

_METHOD, _REFERENCE = "gsebo", "vanilla"
# A figure of the paper is taken to be met by one that is so many points below it.
_NEAR = 1.0
Figures = Mapping[Cell, float]


def elsewhere_tables(recipe: str) -> list[Table]:
    """What others print of methods or graphs that are not ours, below a recipe's."""
    tables = []
    for printed in published_elsewhere(recipe):
        groups = {title: ColumnGroup(title) for title in printed.columns}
        lines = [
            (
                (name,),
                # Of the last columns there may be none.
                {
                    title: [Value(figure)]
                    for title, figure in zip(printed.columns, figures, strict=False)
                },
            )
            for name, figures in printed.rows.items()
        ]
        # Not "method": a row may be a method that we do not have.
        tables.append(lay_out(printed.title, ("published as",), groups, lines))
    return tables


def claim_tables(
    recipe: str, found: Mapping[Cell, Entry]
) -> tuple[list[Table], tuple[str, ...]]:
    """Tables of these gains and sentences about them, where the paper sums up.

    Sentences are about GSEBO with the paper's learning rates.
    """
    ours = {cell: one.ours.mean for cell, one in found.items() if one.ours}
    paper = {cell: one.paper[0] for cell, one in found.items() if one.paper}
    if recipe == "table1":
        return _over_plain(ours, paper)
    if recipe == "table2":
        return _over_others(ours, paper)
    return [], ()


def _gains(
    figures: Figures, setting: str, beside: Callable[[Cell], Cell]
) -> dict[Cell, float]:
    """Of GSEBO in percent, over what stands beside it."""
    return {
        cell: 100 * (figure / figures[beside(cell)] - 1)
        for cell, figure in figures.items()
        if (cell.method, cell.setting) == (_METHOD, setting)
        and figures.get(beside(cell), 0) > 0
    }


def _vanilla(cell: Cell) -> Cell:
    return Cell(_REFERENCE, cell.row, cell.dataset)


def _over_plain(ours: Figures, paper: Figures) -> tuple[list[Table], tuple[str, ...]]:
    printed = published_summary()
    gains = _gains(ours, "", _vanilla)
    rows = _means(gains, "row", printed.by_row)
    datasets = _means(gains, "dataset", printed.by_dataset)
    if len(rows) < len(printed.by_row) or len(datasets) < len(printed.by_dataset):
        # A sum that leaves something out is another one than the paper's.
        return [], ()
    tables = [
        _gain_table("network", "row", printed.by_row, ours, paper),
        _gain_table("dataset", "dataset", printed.by_dataset, ours, paper),
    ]
    return tables, (_of_networks(rows, printed.by_row), _of_density(datasets))


def _gain_table(
    label: str, part: str, told: Mapping[str, float], ours: Figures, paper: Figures
) -> Table:
    """What the paper tells, what its table gives, and ours with each setting."""
    recomputed = _means(_gains(paper, "", _vanilla), part, told)
    lines = []
    for setting in dict.fromkeys(c.setting for c in ours if c.method == _METHOD):
        found = _means(_gains(ours, setting, _vanilla), part, told)
        for name in told:
            line: dict[str, list[Content]] = {
                "text": [Value(told[name], signed=True)],
                "table": [_signed(recomputed.get(name))],
                "ours": [_signed(found.get(name))],
            }
            if part == "dataset":
                line["edges"] = [Value(_edges_per_node(name))]
            lines.append(((name, setting), line))
    groups = {
        "text": ColumnGroup("paper's text"),
        "table": ColumnGroup("paper's table"),
        "ours": ColumnGroup("ours"),
    }
    if part == "dataset":
        groups["edges"] = ColumnGroup("edges for each node")
    title = f"Mean gain of GSEBO over vanilla in percent, by {label}"
    return lay_out(title, (label, "setting"), groups, lines)


def _means(
    gains: Mapping[Cell, float], part: str, names: Iterable[str]
) -> dict[str, float]:
    """Of what belongs to each network, or to each dataset."""
    sorted_out: dict[str, list[float]] = {}
    for cell, gain in gains.items():
        sorted_out.setdefault(getattr(cell, part), []).append(gain)
    return {name: mean(sorted_out[name]) for name in names if name in sorted_out}


def _edges_per_node(dataset: str) -> float:
    info = DATASETS[dataset]
    return info.num_edges / info.num_nodes


def _of_networks(ours: Mapping[str, float], paper: Mapping[str, float]) -> str:
    met = [row for row in paper if ours[row] >= paper[row] - _NEAR]
    missed = [row for row in paper if row not in met]
    parts = []
    if met:
        parts.append(f"supported on {_titles(met, backbone_title)}")
    if missed:
        parts.append(f"not supported on {_titles(missed, backbone_title)}")
    return (
        "Gain over vanilla by network, in percent: "
        f"{_beside(ours, paper, backbone_title)}: {', '.join(parts)} (no more than "
        f"{_NEAR:.0f} below). Vanilla has fewer labels than GSEBO."
    )


def _of_density(ours: Mapping[str, float]) -> str:
    told = published_summary().by_dataset
    order = sorted(ours, key=_edges_per_node)

    def rises(figures: Mapping[str, float]) -> bool:
        return all(figures[one] < figures[next_] for one, next_ in pairwise(order))

    verdict = "is supported" if rises(ours) else "is not supported"
    own = "does" if rises(told) else "does not"
    return (
        f"Gain over vanilla by graph, from the sparsest to the densest, in percent: "
        f"{_beside(ours, told, dataset_title, order)}. That the gain follows density "
        f"{verdict}: it does{'' if rises(ours) else ' not'} rise with the edges for "
        f"each node (what the paper prints {own})."
    )


def _over_others(ours: Figures, paper: Figures) -> tuple[list[Table], tuple[str, ...]]:
    least, most = published_summary().over_others
    others = {
        (cell.method, cell.row): None
        for cell in ours
        if cell.method not in (_METHOD, _REFERENCE, "train_val")
    }
    lines = []
    found: dict[str, float] = {}
    told: dict[str, float] = {}
    for method, row in others:

        def beside(cell: Cell, method: str = method, row: str = row) -> Cell:
            return Cell(method, row, cell.dataset)

        gains, printed = (_gains(each, "", beside) for each in (ours, paper))
        if gains:
            found[method] = mean(gains.values())
        if printed:
            told[method] = mean(printed.values())
        line = {
            "table": [_signed(told.get(method))],
            "ours": [_signed(found.get(method))],
        }
        lines.append(((method,), line))
    if not found or not told:
        return [], ()
    groups = {"table": ColumnGroup("paper's table"), "ours": ColumnGroup("ours")}
    title = "Mean gain of GSEBO over each compared method in percent, over all graphs"
    low, high = (pick(found, key=found.__getitem__) for pick in (min, max))
    supported = [
        f"the least {'is' if found[low] >= least else 'is not'} supported",
        f"the most {'is' if found[high] >= most else 'is not'}",
    ]
    sentence = (
        f"Over the compared methods GSEBO gains {found[low]:.1f} ({method_title(low)}) "
        f"to {found[high]:.1f} percent ({method_title(high)}) on average over the "
        f"graphs; the paper's text says {least} to {most}, its table "
        f"{min(told.values()):.1f} to {max(told.values()):.1f}: {', '.join(supported)}."
    )
    return [lay_out(title, ("method",), groups, lines)], (sentence,)


def _signed(figure: float | None) -> Content:
    return Missing() if figure is None else Value(figure, signed=True)


def _beside(
    ours: Mapping[str, float],
    paper: Mapping[str, float],
    title: Callable[[str], str],
    order: Sequence[str] | None = None,
) -> str:
    """Name each figure, with the paper's in brackets."""
    names = list(paper) if order is None else order
    return ", ".join(f"{title(n)} {ours[n]:.1f} (paper {paper[n]:.1f})" for n in names)


def _titles(names: Sequence[str], title: Callable[[str], str]) -> str:
    return ", ".join(map(title, names))
