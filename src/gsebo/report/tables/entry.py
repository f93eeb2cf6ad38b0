"""What is known about each cell of a recipe: the one source of every figure shown."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from statistics import mean

from gsebo.experiments import Candidate, Cell, Result
from gsebo.experiments.expand import block_trials, places
from gsebo.report.evidence import Evidence
from gsebo.report.names import published_figure
from gsebo.report.tables.summary import Summary, paired_p_value

SIGNIFICANT = 0.05
"""Differences with a smaller p-value are marked."""

_REFERENCE = "vanilla"


@dataclass(frozen=True)
class Entry:
    """The figures of one cell.

    Attributes:
        cell: The cell.
        networks: Names of the networks that were fitted, mostly one.
        paper: Mean and standard deviation that the paper prints.
        ours: Mean and standard deviation of what is stored.
        vanilla: The same for vanilla in the same place, if that is another cell.
        p_vanilla: Of the paired permutation test against it.
        val_accuracy: Mean accuracy in percent on the nodes that chose the step.
        best_step: Mean number of that step.
        seconds: Mean of each fit.
        peak_memory_bytes: Largest of all fits.
    """

    cell: Cell
    networks: tuple[str, ...] = ()
    paper: tuple[float, float] | None = None
    ours: Summary | None = None
    vanilla: Summary | None = None
    p_vanilla: float | None = None
    val_accuracy: float | None = None
    best_step: float | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        if self.ours is None or self.paper is None:
            return None
        return self.ours.mean - self.paper[0]

    @property
    def gain(self) -> float | None:
        """By how many percent it is more accurate than vanilla."""
        if self.ours is None or self.vanilla is None or self.vanilla.mean == 0:
            return None
        return 100 * (self.ours.mean / self.vanilla.mean - 1)

    @property
    def significant(self) -> bool:
        """Whether the difference from vanilla is unlikely to be chance."""
        return self.p_vanilla is not None and self.p_vanilla < SIGNIFICANT


def entries(evidence: Evidence) -> dict[Cell, Entry]:
    """The figures of every cell, in the recipe's order, stored or not."""
    trials = evidence.plan.cells()
    tested = not evidence.recipe.is_search
    found: dict[Cell, Entry] = {}
    for cell in _cells(evidence):
        accuracies = evidence.accuracies(cell)
        reference = _reference(cell, trials.keys()) if tested else None
        others = evidence.accuracies(reference) if reference else {}
        networks = dict.fromkeys(trial.backbone for trial in trials.get(cell, ()))
        entry = Entry(
            cell,
            networks=tuple(networks),
            paper=_printed(evidence, cell),
            ours=Summary.of(accuracies),
            vanilla=Summary.of(others),
            p_vanilla=paired_p_value(accuracies, others),
        )
        found[cell] = _with_costs(entry, list(evidence.results.get(cell, {}).values()))
    return found


def _cells(evidence: Evidence) -> Iterator[Cell]:
    """Every cell of the recipe, those too that wait for the choice of a search."""
    for block in evidence.recipe.blocks:
        for method, row, dataset in places(block):
            taken = None
            if block.tuned_by is not None:
                place = Cell(method, row, dataset, setting=block.label)
                choice = evidence.plan.choices.get(place)
                taken = choice.taken if choice else Candidate(row, {})
            for planned in block_trials(block, method, row, dataset, 1, taken):
                yield planned.cell


def _reference(cell: Cell, cells: Collection[Cell]) -> Cell | None:
    """Vanilla in the same place, with the same setting if there is one."""
    if cell.method == _REFERENCE:
        return None
    same = replace(cell, method=_REFERENCE)
    plain = replace(same, setting="")
    return next((one for one in (same, plain) if one in cells), None)


def _printed(evidence: Evidence, cell: Cell) -> tuple[float, float] | None:
    if cell.noise:
        return None
    return published_figure(evidence.recipe.name, cell.row, cell.method, cell.dataset)


def _with_costs(entry: Entry, results: list[Result]) -> Entry:
    scores = [one.val_accuracy for one in results if one.val_accuracy is not None]
    steps = [one.best_step for one in results if one.best_step is not None]
    seconds = [one.seconds for one in results if one.seconds is not None]
    peaks = [
        one.peak_memory_bytes for one in results if one.peak_memory_bytes is not None
    ]
    return replace(
        entry,
        val_accuracy=100 * mean(scores) if scores else None,
        best_step=mean(steps) if steps else None,
        seconds=mean(seconds) if seconds else None,
        peak_memory_bytes=max(peaks, default=None),
    )
