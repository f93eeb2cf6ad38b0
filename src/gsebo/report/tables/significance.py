"""Whether a difference is chance: tests against a control, and their correction.

A method is compared with a control that has as many labels. One that learns from the
training labels alone has vanilla; one that learns from the validation labels too has
what the recipe declares, and is not tested where that is not there.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gsebo.experiments import Cell
from gsebo.experiments.detection import TRIED
from gsebo.experiments.recipe import DeclaredControl
from gsebo.report.tables.table import Verdict

SIGNIFICANT = 0.05
"""Differences with a smaller p-value are significant."""

FEWEST_SEEDS = math.floor(math.log2(2 / SIGNIFICANT)) + 1
"""So many can be significant: the two ways of all signs equal are 2 of 2^seeds."""

FEWEST_PLACES = 5
"""Over fewer networks and graphs no test is made."""

REFERENCE = "vanilla"
"""The control of methods that learn from the training labels alone."""

_EXACT_UP_TO = 16
_DRAWS = 100_000
# Differences below it are rounding: accuracies are shares of at most a few thousands.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """A cell, the control that it is compared with, and what the test says of both.

    Of a control there is nothing to say, and all is ``None``.
    """

    control: Cell | None = None
    # Of the paired test over seeds, and as corrected for all tests that are shown.
    p: float | None = None
    corrected: float | None = None
    verdict: Verdict | None = None


def control_of(
    cell: Cell, cells: Container[Cell], declared: DeclaredControl | None
) -> Cell | None:
    """The control with as many labels, in the same place; ``None`` where none is.

    Of several cells of a control the one with the same setting is taken, else the one
    without it.
    """
    row = cell.row if declared is None else declared.backbone or cell.row
    if learns_from_val(cell):
        if declared is None:
            return None
        same = _plain(cell, row, declared.method)
        wanted = [replace(same, setting=words) for words in _settings(cell, declared)]
    else:
        same = _plain(cell, row, REFERENCE)
        wanted = [same, replace(same, setting="")]
    return next((one for one in wanted if one in cells), None)


def is_control(cell: Cell, declared: DeclaredControl) -> bool:
    """Whether a cell is of the declared control; words of its own may come first."""
    if cell.method != declared.method or not declared.setting:
        return (cell.method, cell.setting) == (declared.method, declared.setting)
    return f", {cell.setting}".endswith(f", {declared.setting}")


def _settings(cell: Cell, declared: DeclaredControl) -> list[str]:
    """What the control of a cell may be called, the likest first."""
    if is_control(cell, declared):
        return [cell.setting]
    joined = [f"{cell.setting}, {declared.setting}"] if declared.setting else []
    return [*joined, declared.setting]


def _plain(cell: Cell, row: str, method: str) -> Cell:
    """The cell of a control, which labels alone teach."""
    return replace(cell, row=row, method=method, labels="all", consistent=False)


def is_reference(cell: Cell) -> bool:
    """Whether a cell is the plain network, as others are compared with it."""
    return cell.method == REFERENCE and not cell.consistent


def learns_from_val(cell: Cell) -> bool:
    """Whether a method has the labels of the validation nodes to learn from there."""
    return cell.labels == "all" and TRIED[cell.method].learns_from_val


def compare_cells(
    accuracies: Mapping[Cell, Mapping[int, float]], controls: Mapping[Cell, Cell | None]
) -> dict[Cell, Comparison]:
    """Test each of some cells against its control, and correct for the number of tests.

    A cell that is its own control is not tested; one that has none, or too few seeds
    in common with it, is said to be untested.
    """
    p_values: dict[Cell, float] = {}
    for cell, control in controls.items():
        if control is None or control == cell:
            continue
        ours, others = accuracies.get(cell, {}), accuracies.get(control, {})
        p = paired_p_value(ours, others)
        if p is not None and len(ours.keys() & others.keys()) >= FEWEST_SEEDS:
            p_values[cell] = p
    corrected = dict(zip(p_values, corrected_p_values(p_values.values()), strict=True))
    found: dict[Cell, Comparison] = {}
    for cell, control in controls.items():
        if control == cell or not accuracies.get(cell):
            found[cell] = Comparison()
        elif control is None or cell not in corrected:
            found[cell] = Comparison(control, verdict="untested")
        else:
            ahead = _differences(accuracies[cell], accuracies[control]).sum()
            verdict: Verdict = "same"
            if corrected[cell] < SIGNIFICANT:
                verdict = "better" if ahead > 0 else "worse"
            found[cell] = Comparison(control, p_values[cell], corrected[cell], verdict)
    return found


def paired_p_value(
    ours: Mapping[int, float], others: Mapping[int, float]
) -> float | None:
    """Probability of a mean difference as large, if signs were tossed for each seed.

    The paired permutation test, two-sided: exact up to 16 seeds, beyond by 100000
    draws. ``None`` where fewer than two seeds are in both.

    Args:
        ours: Scores by seed.
        others: Scores of the other by seed.
    """
    differences = _differences(ours, others)
    return _tossed(differences) if len(differences) > 1 else None


def signed_rank_p_value(differences: Sequence[float]) -> float:
    """Wilcoxon's signed-rank test, two-sided: signs are tossed for ranks, not sizes.

    Differences of zero are left out; equal ones share their mean rank. Exact up to 16,
    beyond by 100000 draws.

    >>> signed_rank_p_value([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    sizes = np.round(np.abs(np.asarray(differences, dtype=np.float64)), 9)
    kept = sizes > 0
    if not kept.any():
        return 1.0
    _, group, count = np.unique(sizes[kept], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[group]
    return _tossed(np.sign(np.asarray(differences)[kept]) * ranks)


def corrected_p_values(p_values: Iterable[float]) -> list[float]:
    """By Benjamini and Hochberg: of all that stay below a level, so few are chance.

    >>> corrected_p_values([0.01, 0.04, 0.03])
    [0.03, 0.04, 0.04]
    """
    given = np.array(list(p_values), dtype=np.float64)
    if not given.size:
        return []
    falling = np.argsort(given)[::-1]
    scaled = given[falling] * len(given) / np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[falling] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    found: list[float] = corrected.tolist()
    return found


def _differences(
    ours: Mapping[int, float], others: Mapping[int, float]
) -> NDArray[np.float64]:
    """Of the seeds that both have, ascending."""
    seeds = sorted(ours.keys() & others.keys())
    return np.array([ours[seed] - others[seed] for seed in seeds], dtype=np.float64)


def _tossed(numbers: NDArray[np.float64]) -> float:
    """Probability of a sum as large if the sign of each number were tossed."""
    exact = len(numbers) <= _EXACT_UP_TO
    if exact:
        signs = np.array(list(product((1, -1), repeat=len(numbers))))
    else:
        signs = np.random.default_rng(0).choice((1, -1), (_DRAWS, len(numbers)))
    # Sums of the same numbers in another order may differ in the last digit.
    least = abs(numbers.sum()) - _ROUNDING
    as_large = int((np.abs(signs @ numbers) >= least).sum())
    # What was observed is one of the draws, so that none is impossible.
    return as_large / len(signs) if exact else (as_large + 1) / (len(signs) + 1)
