"""The trials behind a table or figure, cell by cell."""

from collections.abc import Iterable
from dataclasses import dataclass

from gsebo.experiments import Cell
from gsebo.experiments.expand import setting_in_words
from gsebo.report.entry import entries
from gsebo.report.evidence import Evidence
from gsebo.report.summary import Summary

_SHORT = 8


@dataclass(frozen=True)
class CellTrials:
    """The trials of one cell.

    Attributes:
        anchor: Name of its place in the page.
        cell: The cell.
        chosen: Network and parameters that a search took, in words.
        ours: Mean and spread of what is stored.
        seeds: Of the finished trials, in words.
        ids: First letters of their names.
    """

    anchor: str
    cell: Cell
    chosen: str
    ours: Summary | None
    seeds: str
    ids: tuple[str, ...]


def trial_list(evidence: Evidence) -> list[CellTrials]:
    """List every cell of a recipe, stored or not."""
    found = []
    for number, (cell, entry) in enumerate(entries(evidence).items()):
        results = evidence.results.get(cell, {})
        found.append(
            CellTrials(
                anchor=f"{evidence.recipe.name}-cell-{number}",
                cell=cell,
                chosen=_chosen(evidence, cell),
                ours=entry.ours,
                seeds=ranges(results),
                ids=tuple(results[seed].key[:_SHORT] for seed in sorted(results)),
            )
        )
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers, neighbours together.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs
    )


def _chosen(evidence: Evidence, cell: Cell) -> str:
    for place, choice in evidence.plan.choices.items():
        same = (place.method, place.row, place.dataset, place.setting) == (
            cell.method,
            cell.row,
            cell.dataset,
            cell.setting,
        )
        if same:
            taken = choice.taken
            network = {} if taken.backbone == cell.row else {"backbone": taken.backbone}
            return setting_in_words(network | taken.parameters)
    return ""
