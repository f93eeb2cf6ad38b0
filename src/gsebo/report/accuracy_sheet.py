"""Accuracies of a recipe, beside the paper's, as a sheet."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gsebo.data import NoiseSpec, level_in_words
from gsebo.data.noise_kinds import INTER_CLASS
from gsebo.errors import InvalidInput
from gsebo.experiments import Cell
from gsebo.report.curve_table import curve_table
from gsebo.report.entry import SIGNIFICANT, Entry, entries
from gsebo.report.evidence import Evidence
from gsebo.report.gain_table import gain_table
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.noise_levels import levels_by_kind, measured_by
from gsebo.report.strength_table import strength_tables
from gsebo.report.table import Content, Group, Missing, Row, Sheet, Table, Value

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
        groups=tuple(Group(heading, headings) for heading in titles.values()),
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
