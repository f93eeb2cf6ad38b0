"""Accuracies of a recipe, beside the paper's, as a sheet."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
        curves = {name: mean_curve(results, name) for name in _COLUMNS}
        contents: list[Content] = []
        for step in steps:
            for curve in curves.values():
                contents.append(Missing())
                if curve is None or step > curve[0][-1]:
                    continue
                at = int((curve[0] >= step).argmax())
                contents[-1] = Value(100 * curve[1][at], 100 * curve[2][at])
        words = (method_title(cell.method), dataset_title(cell.dataset), cell.setting)
        rows.append(Row((backbone_title(cell.row), *words), tuple(contents)))
    return Table(
        title="After so many steps of the weights: training loss times 100, and "
        "accuracies in percent",
        labels=("network", "method", "dataset", "setting"),
        groups=tuple(
            ColumnGroup(str(step), tuple(_COLUMNS.values())) for step in steps
        ),
        rows=tuple(rows),
    )


def gain_table(found: Iterable[Entry]) -> Table | None:
    """Relative gains of GSEBO over vanilla, by false edges.

    Args:
        found: Entries of one dataset; other noise is left out.

    Returns:
        A line for each network, with the paper's gain where it prints one; ``None``
        where vanilla is not beside GSEBO.
    """
    lines: dict[tuple[str, str], dict[int, Entry]] = {}
    for one in found:
        count = one.cell.noise
        known = one.cell.method == "gsebo" and one.gain is not None
        if known and isinstance(count, int):
            lines.setdefault((one.cell.row, one.cell.setting), {})[count] = one
    if not lines:
        return None
    levels = sorted({level for line in lines.values() for level in line})
    kept = 2 if any(setting for _, setting in lines) else 1
    some = next(iter(lines.values()))
    dataset = next(iter(some.values())).cell.dataset
    rows = []
    for (network, setting), line in lines.items():
        contents: list[Content] = []
        for level in levels:
            ours = line[level].gain if level in line else None
            if (dataset, level) == gain_place():
                contents += _gain_beside(published_gain(network), ours)
            else:
                contents.append(_percent(ours))
        labels = (backbone_title(network), setting)[:kept]
        rows.append(Row(labels, tuple(contents)))
    return Table(
        title="Gain of GSEBO over vanilla, in percent of vanilla's accuracy",
        labels=("network", "setting")[:kept],
        groups=tuple(_group(dataset, level) for level in levels),
        rows=tuple(rows),
        dataset=dataset,
    )


def _group(dataset: str, level: int) -> ColumnGroup:
    if (dataset, level) == gain_place():
        return ColumnGroup(str(level), ("paper", "ours", "difference"))
    return ColumnGroup(str(level))


def _gain_beside(paper: float | None, ours: float | None) -> list[Content]:
    difference = None if paper is None or ours is None else ours - paper
    return [_percent(paper), _percent(ours), _percent(difference)]


def _percent(figure: float | None) -> Content:
    return Missing() if figure is None else Value(figure, signed=True)


_TITLE = "Strength relative to the start, in percent"


def strength_tables(evidence: Evidence) -> list[Table]:
    """Mean strengths of each network: by dataset, and by each kind of noise."""
    found = {cell: edge_groups(results) for cell, results in evidence.results.items()}
    known = {cell: groups for cell, groups in found.items() if groups}
    tables = []
    clean = {cell: groups for cell, groups in known.items() if not cell.noise}
    if clean:
        tables.append(_strengths_shown(_TITLE, clean, ("within", "between")))
    for dataset in dict.fromkeys(cell.dataset for cell in known if cell.noise):
        noisy = {
            cell: groups
            for cell, groups in known.items()
            if cell.dataset == dataset and cell.noise
        }
        for kind, levels in levels_by_kind(cell.noise for cell in noisy).items():
            part = {
                cell: groups
                for level in levels
                for cell, groups in noisy.items()
                if cell.noise == level
            }
            title = f"{_TITLE}: {dataset_title(dataset)}, by {measured_by(kind)}"
            shown = _strengths_shown(title, part, ("within", "between", "false"))
            tables.append(replace(shown, dataset=dataset, noise=kind))
    return tables


def _strengths_shown(
    title: str, found: dict[Cell, dict[str, PooledEdges]], groups: tuple[str, ...]
) -> Table:
    columns = list(dict.fromkeys(_column(cell) for cell in found))
    rows: dict[tuple[str, str], dict[str, dict[str, PooledEdges]]] = {}
    for cell, by_group in found.items():
        rows.setdefault((cell.row, cell.setting), {})[_column(cell)] = by_group
    kept = 2 if any(setting for _, setting in rows) else 1
    return Table(
        title=title,
        labels=("network", "setting")[:kept],
        groups=tuple(ColumnGroup(column, groups) for column in columns),
        rows=tuple(
            Row(
                (backbone_title(network), setting)[:kept],
                tuple(
                    _content(line.get(column, {}).get(group))
                    for column in columns
                    for group in groups
                ),
            )
            for (network, setting), line in rows.items()
        ),
    )


def _column(cell: Cell) -> str:
    return level_in_words(cell.noise) if cell.noise else dataset_title(cell.dataset)


def _content(group: PooledEdges | None) -> Content:
    if group is None:
        return Missing()
    return Value(100 * group.ratio.mean, 100 * group.ratio.std)


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
    found = entries(evidence)
    if not found:
        raise InvalidInput(
            f"the recipe {evidence.recipe.name!r} has no cells: none of its methods "
            "takes one of its networks."
        )
    seeds = _usual_seeds(evidence)
    noise = {cell.noise for cell in found}
    tables: list[Table] = []
    if len(noise) > 1:
        noisy = {cell.dataset for cell in found if cell.noise}
        for dataset in dict.fromkeys(c.dataset for c in found if c.dataset in noisy):
            part = {c: one for c, one in found.items() if c.dataset == dataset}
            tables += _tables_by_noise(dataset, part, seeds, brackets)
        clean = {c: one for c, one in found.items() if c.dataset not in noisy}
        if clean:
            tables.append(_table("Graphs as they are", clean, seeds, brackets))
    else:
        tables.append(_table("", found, seeds, brackets))
    recipe = evidence.recipe
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


def _usual_seeds(evidence: Evidence) -> int:
    planned = evidence.plan.cells().values()
    numbers = (len({trial.seed for trial in trials}) for trials in planned)
    return max(numbers, default=evidence.recipe.seeds)


def _tables_by_noise(
    dataset: str, found: Mapping[Cell, Entry], seeds: int, brackets: bool
) -> Iterator[Table]:
    for kind, levels in levels_by_kind(cell.noise for cell in found).items():
        part = {cell: one for cell, one in found.items() if cell.noise in levels}
        title = f"{dataset_title(dataset)}, by {measured_by(kind)}"
        shown = _table(title, part, seeds, brackets, levels)
        yield replace(shown, dataset=dataset, noise=kind)
        # The paper prints gains, and those of this kind only.
        gains = gain_table(part.values()) if kind == INTER_CLASS else None
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
    places = [(cell.noise if levels else cell.dataset) for cell in found]
    datasets = dict.fromkeys(cell.dataset for cell in found)
    titles: dict[NoiseSpec, str] = (
        {level: level_in_words(level) for level in levels}
        if levels
        else {dataset: dataset_title(dataset) for dataset in datasets}
    )
    by_row: dict[tuple[str, str, str], dict[object, Entry]] = {}
    for place, (cell, entry) in zip(places, found.items(), strict=True):
        by_row.setdefault((cell.row, cell.method, cell.setting), {})[place] = entry
    beside = not brackets and any(entry.paper for entry in found.values())
    settings = any(setting for _, _, setting in by_row)
    rows = []
    for network in dict.fromkeys(key[0] for key in by_row):
        section = {key: line for key, line in by_row.items() if key[0] == network}
        best = {place: _best(section.values(), place) for place in titles}
        for (_, method, setting), line in section.items():
            words = (method_title(method), *([setting] if settings else []))
            contents: list[Content] = []
            for place in titles:
                known = line.get(place)
                ours = _ours(known, seeds, best[place], brackets)
                contents += _beside(known, ours) if beside else [ours]
            rows.append(Row((backbone_title(network), *words), tuple(contents)))
    headings = _BESIDE if beside else ("",)
    return Table(
        title=title,
        labels=("network", "method", *(["setting"] if settings else [])),
        groups=tuple(ColumnGroup(heading, headings) for heading in titles.values()),
        rows=tuple(rows),
    )


def _best(section: Iterable[Mapping[object, Entry]], place: object) -> float | None:
    """The highest mean of a column, if there is something to compare it with."""
    lines = (line[place].ours for line in section if place in line)
    means = [_shown(ours.mean) for ours in lines if ours is not None]
    return max(means) if len(means) > 1 else None


def _shown(mean: float) -> float:
    # Means that look the same are equally good.
    return float(f"{mean:.1f}")


def _ours(
    entry: Entry | None, seeds: int, best: float | None, brackets: bool
) -> Content:
    paper = entry.paper[0] if entry and entry.paper and brackets else None
    if entry is None or entry.ours is None:
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


def _beside(entry: Entry | None, ours: Content) -> list[Content]:
    paper: Content = Missing()
    difference: Content = Missing()
    if entry and entry.paper:
        paper = Value(*entry.paper)
    if entry and entry.difference is not None:
        difference = Value(entry.difference, signed=True)
    return [paper, ours, difference]


def _notes(
    evidence: Evidence, found: Iterable[Entry], seeds: int, brackets: bool
) -> tuple[str, ...]:
    what = "Test accuracy"
    if evidence.recipe.is_search:
        what = "Accuracy on the half of the validation nodes that scores candidates"
    notes = [f"{what} in percent: mean ± standard deviation over {seeds} seeds."]
    shown = list(found)
    if any(entry.paper for entry in shown):
        notes[0] = notes[0].removesuffix(".") + (
            ", in brackets the mean of the paper."
            if brackets
            else "; the difference is ours less the paper's."
        )
    if any(entry.p_vanilla is not None for entry in shown):
        notes.append(
            f"* Differs from vanilla in the same place: p < {SIGNIFICANT} in the "
            "two-sided paired permutation test over seeds, which fewer than "
            f"{_FEWEST} seeds cannot reach; not corrected for the number of cells."
        )
    return tuple(notes)


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
