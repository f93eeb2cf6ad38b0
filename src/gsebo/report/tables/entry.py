"""What is known about each cell of a recipe: the one source of every figure shown."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import mean

from gsebo.errors import InvalidInput
from gsebo.experiments import Candidate, Cell
from gsebo.experiments.plan import block_trials, places
from gsebo.metrics import METRICS
from gsebo.report.evidence import Evidence, Summary
from gsebo.report.names import published_figure
from gsebo.report.tables.significance import (
    REFERENCE,
    Comparison,
    compare_cells,
    control_of,
    is_control,
    is_reference,
)


@dataclass(frozen=True)
class Entry:
    """The figures of one cell: means over its fits, scores times 100.

    Attributes:
        cell: Whose figures they are.
        networks: Those that were fitted, mostly one.
        paper: Mean that is published, and its standard deviation where that is, too.
        ours: Over our fits.
        vanilla: Of vanilla in the same place, if that is another cell.
        comparison: With a control that has as many labels.
        val_accuracy: On the nodes that chose the step.
        best_step: Mean number of the step that was kept.
        seconds: Mean of a fit.
        peak_memory_bytes: The largest of all fits.
        metric: What ours and vanilla are.
    """

    cell: Cell
    networks: tuple[str, ...]
    paper: tuple[float, float | None] | None
    ours: Summary | None
    vanilla: Summary | None
    comparison: Comparison
    val_accuracy: float | None
    best_step: float | None
    seconds: float | None
    peak_memory_bytes: int | None
    metric: str = "accuracy"

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        if self.ours is None or self.paper is None:
            return None
        return self.ours.mean - self.paper[0]

    @property
    def gain(self) -> float | None:
        """By how many percent of vanilla's score it is better, if that is a share."""
        if self.ours is None or self.vanilla is None or self.vanilla.mean == 0:
            return None
        if not METRICS[self.metric].in_percent:
            return None
        return 100 * (self.ours.mean / self.vanilla.mean - 1)


def entries(evidence: Evidence) -> dict[Cell, Entry]:
    """The figures of every cell, in the recipe's order, stored or not.

    Args:
        evidence: What is stored for a recipe.
    """
    trials = evidence.plan.cells()
    cells = list(dict.fromkeys(_cells(evidence)))
    tested = compare_cells(
        {cell: evidence.scores(cell) for cell in cells}, _controls(evidence, cells)
    )
    found: dict[Cell, Entry] = {}
    for cell in cells:
        results = evidence.results.get(cell, {}).values()
        scores, metric = evidence.scores(cell), evidence.recipe.metric_of(cell.dataset)
        others: dict[int, float] = {}
        if cell.method != REFERENCE and not evidence.recipe.is_search:
            # Vanilla in the same place, with the same setting if there is one.
            same = replace(cell, method=REFERENCE)
            others = evidence.scores(same if same in trials else _plain(same))
        place = (cell.row, cell.method, cell.dataset, metric)
        printed = published_figure(evidence.recipe.name, *place)
        peaks = (one.peak_memory_bytes for one in results)
        found[cell] = Entry(
            cell,
            tuple(dict.fromkeys(trial.backbone for trial in trials.get(cell, ()))),
            paper=None if cell.noise else printed,
            ours=Summary.of(scores),
            vanilla=Summary.of(others),
            comparison=tested.get(cell, Comparison()),
            val_accuracy=_mean((one.val_accuracy for one in results), 100),
            best_step=_mean(one.best_step for one in results),
            seconds=_mean(one.seconds for one in results),
            peak_memory_bytes=max((b for b in peaks if b is not None), default=None),
            metric=metric,
        )
    return found


def _controls(evidence: Evidence, cells: list[Cell]) -> dict[Cell, Cell | None]:
    """What each cell is tested against: a control is its own; a search has none."""
    if evidence.recipe.is_search:
        return {}
    declared, known = evidence.recipe.control, set(cells)
    if declared is not None and not any(is_control(cell, declared) for cell in known):
        raise InvalidInput(
            f"control of the recipe {evidence.recipe.name!r} is {declared.method} "
            f"with the setting {declared.setting!r}; expected one of its cells."
        )
    trials = {
        cell: frozenset(trial.key for trial in planned)
        for cell, planned in evidence.plan.cells().items()
    }
    controls: dict[Cell, Cell | None] = {}
    for cell in cells:
        control = control_of(cell, known, declared)
        if is_reference(cell):
            control = cell
        elif control is not None and trials.get(cell) == trials.get(control):
            # The same trials under another name, as in a recipe that varies one
            # parameter after the other.
            control = cell
        controls[cell] = control
    return controls


def _plain(cell: Cell) -> Cell:
    return replace(cell, setting="")


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


def _mean(values: Iterable[float | None], factor: int = 1) -> float | None:
    known = [one for one in values if one is not None]
    return factor * mean(known) if known else None
