"""Accuracies of a recipe, beside the paper's, as a sheet."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from gsebo.data import NoiseSpec, level_in_words
from gsebo.data.noise.registry import INTER_CLASS
from gsebo.errors import InvalidInput
from gsebo.experiments import Cell
from gsebo.report.evidence import (
    Evidence,
    PooledEdges,
    edge_groups,
    levels_by_kind,
    mean_curve,
    measured_by,
)
from gsebo.report.names import (
    backbone_title,
    dataset_title,
    gain_place,
    method_title,
    published_gain,
)
from gsebo.report.tables.entry import SIGNIFICANT, Entry, entries
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Row,
    Sheet,
    Table,
    Value,
)

# The two ways of all signs equal are 2 of 2^seeds.
_FEWEST = math.floor(math.log2(2 / SIGNIFICANT)) + 1
_BESIDE = ("paper", "ours", "difference")


def accuracy_sheet(evidence: Evidence, *, brackets: bool = False) -> Sheet:
    """Lay out what is stored for a recipe.

    Columns are datasets; where cells differ by their noise there is a table for each
    dataset and kind of noise, and columns are levels of it. What became of the edges
    follows where the recipe is about them, and curves where they are stored.

    Args:
        evidence: What is stored.
        brackets: Whether the paper's mean stands in brackets behind ours, instead of
            columns of its own.

    Raises:
        InvalidInput: The recipe has no cells.
    """
    recipe, found = evidence.recipe, entries(evidence)
    if not found:
        raise InvalidInput(
            f"the recipe {recipe.name!r} has no cells: none of its methods takes one "
            "of its networks."
        )
    planned = evidence.plan.cells().values()
    numbers = (len({trial.seed for trial in trials}) for trials in planned)
    seeds = max(numbers, default=recipe.seeds)
    tables: list[Table] = []
    if len({cell.noise for cell in found}) > 1:
        noisy = {cell.dataset for cell in found if cell.noise}
        for dataset in dict.fromkeys(c.dataset for c in found if c.dataset in noisy):
            part = {c: one for c, one in found.items() if c.dataset == dataset}
            tables += _tables_by_noise(dataset, part, seeds, brackets)
        clean = {c: one for c, one in found.items() if c.dataset not in noisy}
        if clean:
            tables.append(_table("Graphs as they are", clean, seeds, brackets))
    else:
        tables.append(_table("", found, seeds, brackets))
    if recipe.shows_edges:
        tables += strength_tables(evidence)
    if curves := curve_table(evidence):
        tables.append(curves)
    return Sheet(
        title=recipe.title,
        about=recipe.about,
        tables=tuple(tables),
        notes=_notes(evidence, found.values(), seeds, brackets),
        facts={
            "recipe": recipe.name,
            "seeds": seeds,
            "missing": evidence.missing,
            "failed": len(evidence.failed),
        },
        kind="cells",
        records=tuple(_record(recipe.name, entry) for entry in found.values()),
    )


def _tables_by_noise(
    dataset: str, found: Mapping[Cell, Entry], seeds: int, brackets: bool
) -> Iterator[Table]:
    for kind, levels in levels_by_kind(cell.noise for cell in found).items():
        part = {cell: one for cell, one in found.items() if cell.noise in levels}
        title = f"{dataset_title(dataset)}, by {measured_by(kind)}"
        shown = _table(title, part, seeds, brackets, levels)
        yield replace(shown, dataset=dataset, noise=kind)
        # The paper prints gains, and those of this kind only.
        gains = _gain_table(dataset, part.values()) if kind == INTER_CLASS else None
        if gains:
            yield gains


def _table(
    title: str,
    found: Mapping[Cell, Entry],
    seeds: int,
    brackets: bool,
    levels: Sequence[NoiseSpec] = (),
) -> Table:
    """Lay entries out by dataset, or by levels of noise where there are some."""
    titles: dict[NoiseSpec, str] = {level: level_in_words(level) for level in levels}
    if not levels:
        titles = {cell.dataset: dataset_title(cell.dataset) for cell in found}
    by_row: dict[tuple[str, str, str], dict[NoiseSpec, Entry]] = {}
    for cell, entry in found.items():
        line = by_row.setdefault((cell.row, cell.method, cell.setting), {})
        line[cell.noise if levels else cell.dataset] = entry
    beside = not brackets and any(entry.paper for entry in found.values())
    rows = []
    for network in dict.fromkeys(key[0] for key in by_row):
        section = {key: line for key, line in by_row.items() if key[0] == network}
        best = {place: _best(section.values(), place) for place in titles}
        for (_, method, setting), line in section.items():
            contents: list[Content] = []
            for place in titles:
                entry = line.get(place) or Entry(Cell(method, network, ""))
                ours = _ours(entry, seeds, best[place], brackets)
                paper = Value(*entry.paper) if entry.paper else Missing()
                difference = _signed(entry.difference)
                contents += [paper, ours, difference] if beside else [ours]
            labels = (backbone_title(network), method_title(method), setting)
            rows.append(Row(labels, tuple(contents)))
    headings = _BESIDE if beside else ("",)
    return Table(
        title=title,
        labels=("network", "method", "setting"),
        groups=tuple(ColumnGroup(heading, headings) for heading in titles.values()),
        rows=tuple(rows),
    ).without_empty("setting")


def _best(
    section: Iterable[Mapping[NoiseSpec, Entry]], place: NoiseSpec
) -> float | None:
    """The highest mean of a column, if there is something to compare it with."""
    lines = (line[place].ours for line in section if place in line)
    means = [_shown(ours.mean) for ours in lines if ours is not None]
    return max(means) if len(means) > 1 else None


def _shown(mean: float) -> float:
    # Means that look the same are equally good.
    return float(f"{mean:.1f}")


def _ours(entry: Entry, seeds: int, best: float | None, brackets: bool) -> Content:
    paper = entry.paper[0] if entry.paper and brackets else None
    if entry.ours is None:
        return Missing(paper)
    ours = entry.ours
    return Value(
        ours.mean,
        ours.std,
        seeds=ours.count if ours.count != seeds else None,
        marked=entry.significant,
        best=_shown(ours.mean) == best,
        brackets=paper,
    )


def _signed(figure: float | None) -> Content:
    return Missing() if figure is None else Value(figure, signed=True)


def _gain_table(dataset: str, found: Iterable[Entry]) -> Table | None:
    """Relative gains of GSEBO over vanilla on a dataset, by false edges.

    The paper's stand beside them where it prints some; ``None`` where vanilla is not
    beside GSEBO.
    """
    lines: dict[tuple[str, str], dict[int, float]] = {}
    for one in found:
        cell, level, gain = one.cell, one.cell.noise, one.gain
        if cell.method == "gsebo" and gain is not None and isinstance(level, int):
            lines.setdefault((cell.row, cell.setting), {})[level] = gain
    if not lines:
        return None
    levels = sorted({level for line in lines.values() for level in line})
    printed = {level for level in levels if (dataset, level) == gain_place()}
    rows = []
    for (network, setting), line in lines.items():
        contents: list[Content] = []
        for level in levels:
            paper, ours = published_gain(network), line.get(level)
            difference = None if paper is None or ours is None else ours - paper
            shown = (paper, ours, difference) if level in printed else (ours,)
            contents += map(_signed, shown)
        rows.append(Row((backbone_title(network), setting), tuple(contents)))
    return Table(
        title="Gain of GSEBO over vanilla, in percent of vanilla's accuracy",
        labels=("network", "setting"),
        groups=tuple(
            ColumnGroup(str(level), _BESIDE if level in printed else ("",))
            for level in levels
        ),
        rows=tuple(rows),
        dataset=dataset,
    ).without_empty("setting")


_STRENGTHS = "Strength relative to the start, in percent"


def strength_tables(evidence: Evidence) -> list[Table]:
    """Mean strengths of each network: by dataset, and by each kind of noise."""
    found = {cell: edge_groups(results) for cell, results in evidence.results.items()}
    known = {cell: groups for cell, groups in found.items() if groups}
    tables = []
    clean = {cell: groups for cell, groups in known.items() if not cell.noise}
    if clean:
        tables.append(_strength_table(_STRENGTHS, clean, ("within", "between")))
    for dataset in dict.fromkeys(cell.dataset for cell in known if cell.noise):
        noisy = [cell for cell in known if cell.dataset == dataset and cell.noise]
        for kind, levels in levels_by_kind(cell.noise for cell in noisy).items():
            part = {
                cell: known[cell]
                for level in levels
                for cell in noisy
                if cell.noise == level
            }
            title = f"{_STRENGTHS}: {dataset_title(dataset)}, by {measured_by(kind)}"
            shown = _strength_table(title, part, ("within", "between", "false"))
            tables.append(replace(shown, dataset=dataset, noise=kind))
    return tables


def _strength_table(
    title: str, found: dict[Cell, dict[str, PooledEdges]], groups: tuple[str, ...]
) -> Table:
    columns: dict[str, None] = {}
    lines: dict[tuple[str, str], dict[str, dict[str, PooledEdges]]] = {}
    for cell, by_group in found.items():
        noise, dataset = level_in_words(cell.noise), dataset_title(cell.dataset)
        column = noise if cell.noise else dataset
        columns[column] = None
        lines.setdefault((cell.row, cell.setting), {})[column] = by_group
    rows = []
    for (network, setting), line in lines.items():
        contents: list[Content] = []
        for column, group in product(columns, groups):
            one = line.get(column, {}).get(group)
            ratio = one and one.ratio
            contents.append(
                Value(100 * ratio.mean, 100 * ratio.std) if ratio else Missing()
            )
        rows.append(Row((backbone_title(network), setting), tuple(contents)))
    return Table(
        title=title,
        labels=("network", "setting"),
        groups=tuple(ColumnGroup(column, groups) for column in columns),
        rows=tuple(rows),
    ).without_empty("setting")


_PLACES = (0.03, 0.1, 0.3, 1.0)
_COLUMNS = {
    "train_loss": "loss",
    "train_accuracy": "train",
    "val_accuracy": "val",
    "test_accuracy": "test",
}


def curve_table(evidence: Evidence) -> Table | None:
    """Mean and spread over seeds at a few places; ``None`` where no curve is stored."""
    longest = max(
        (
            int(one.curves["inner_steps"][-1])
            for results in evidence.results.values()
            for one in results.values()
            if one.curves
        ),
        default=0,
    )
    if not longest:
        return None
    steps = [round(longest * place) for place in _PLACES]
    rows = []
    for cell, results in evidence.results.items():
        curves = [mean_curve(results, name) for name in _COLUMNS]
        contents: list[Content] = []
        for step in steps:
            for curve in curves:
                contents.append(Missing())
                if curve is not None and step <= curve[0][-1]:
                    at = int((curve[0] >= step).argmax())
                    contents[-1] = Value(100 * curve[1][at], 100 * curve[2][at])
        words = (method_title(cell.method), dataset_title(cell.dataset), cell.setting)
        rows.append(Row((backbone_title(cell.row), *words), tuple(contents)))
    headings = tuple(_COLUMNS.values())
    return Table(
        title="After so many steps of the weights: training loss times 100, and "
        "accuracies in percent",
        labels=("network", "method", "dataset", "setting"),
        groups=tuple(ColumnGroup(str(step), headings) for step in steps),
        rows=tuple(rows),
    )


def _notes(
    evidence: Evidence, found: Iterable[Entry], seeds: int, brackets: bool
) -> tuple[str, ...]:
    what = "Test accuracy"
    if evidence.recipe.is_search:
        what = "Accuracy on the half of the validation nodes that scores candidates"
    first = f"{what} in percent: mean ± standard deviation over {seeds} seeds"
    shown = list(found)
    if any(entry.paper for entry in shown):
        first += (
            ", in brackets the mean of the paper"
            if brackets
            else "; the difference is ours less the paper's"
        )
    if all(entry.p_vanilla is None for entry in shown):
        return (f"{first}.",)
    return (
        f"{first}.",
        f"* Differs from vanilla in the same place: p < {SIGNIFICANT} in the "
        "two-sided paired permutation test over seeds, which fewer than "
        f"{_FEWEST} seeds cannot reach; not corrected for the number of cells.",
    )


def _record(recipe: str, entry: Entry) -> dict[str, object]:
    cell, paper, ours = entry.cell, entry.paper, entry.ours
    return {
        "recipe": recipe,
        "method": cell.method,
        "row": cell.row,
        "network": "/".join(entry.networks) or None,
        "dataset": cell.dataset,
        "noise": cell.noise,
        "setting": cell.setting,
        "paper_mean": paper[0] if paper else None,
        "paper_std": paper[1] if paper else None,
        "mean": ours.mean if ours else None,
        "std": ours.std if ours else None,
        "seeds": ours.count if ours else 0,
        "difference": entry.difference,
        "p_vanilla": entry.p_vanilla,
        "gain_percent": entry.gain,
        "val_accuracy": entry.val_accuracy,
        "best_step": entry.best_step,
        "seconds": entry.seconds,
        "peak_memory_bytes": entry.peak_memory_bytes,
    }
