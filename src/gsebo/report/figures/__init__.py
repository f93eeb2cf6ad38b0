"""Figures, from stored results only: one file and one entry here for each."""

from collections.abc import Callable

from gsebo.report.evidence import Evidence
from gsebo.report.figures.budgets import over_budgets
from gsebo.report.figures.curves import convergence, overfitting
from gsebo.report.figures.drawing import Drawing
from gsebo.report.figures.factors import factors
from gsebo.report.figures.robustness import robustness, robustness_extended
from gsebo.report.figures.strengths import strengths

FIGURES: dict[str, Callable[[Evidence], Drawing | None]] = {
    "robustness": robustness,
    "convergence": convergence,
    "overfitting": overfitting,
    "inter_class": strengths,
    "factors": factors,
    "sensitivity": factors,
    "robustness_extended": robustness_extended,
    "beyond": robustness_extended,
    "metattack": over_budgets,
    "nettack": over_budgets,
    "prbcd": over_budgets,
    "hetero": over_budgets,
}
"""What draws a recipe; ``None`` is drawn where nothing is stored."""
