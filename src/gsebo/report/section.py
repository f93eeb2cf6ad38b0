"""One recipe of the page: its figure, its tables, and the trials behind them."""

from dataclasses import dataclass

from gsebo.experiments import Recipe
from gsebo.report.accuracy_sheet import accuracy_sheet
from gsebo.report.choices_sheet import choices_sheet
from gsebo.report.evidence import Evidence
from gsebo.report.figures import FIGURES, Drawing
from gsebo.report.gaps import gaps
from gsebo.report.outline import Outline, outline
from gsebo.report.page_table import PageTable, page_table
from gsebo.report.trial_list import CellTrials, trial_list


@dataclass(frozen=True)
class Section:
    """What the page shows of a recipe.

    Attributes:
        recipe: The recipe.
        plan: Its names.
        drawing: Its figure, if it has one and something is stored.
        tables: What ``gsebo show`` prints.
        notes: How to read them.
        folded: Whether the tables stand behind the figure, to be unfolded.
        choices: What validation chose.
        choice_notes: How to read that.
        trials: The trials of each cell.
        stored: Number of trials that came to their end.
        gaps: What is missing, in sentences.
    """

    recipe: Recipe
    plan: Outline
    drawing: Drawing | None = None
    tables: tuple[PageTable, ...] = ()
    notes: tuple[str, ...] = ()
    folded: bool = False
    choices: tuple[PageTable, ...] = ()
    choice_notes: tuple[str, ...] = ()
    trials: tuple[CellTrials, ...] = ()
    stored: int = 0
    gaps: tuple[str, ...] = ()


def section(evidence: Evidence) -> Section:
    """Put together what is known of a recipe, whatever is missing."""
    recipe = evidence.recipe
    plan = outline(recipe)
    keys = {
        one.key for results in evidence.results.values() for one in results.values()
    }
    missing = gaps(evidence, recipe.name)
    if not keys:
        return Section(recipe, plan, gaps=tuple(missing))
    draw = FIGURES.get(recipe.name)
    drawing = draw(evidence) if draw else None
    if draw and drawing is None:
        missing.append("There is not enough yet to draw the figure.")
    elif drawing and drawing.absent:
        missing.append(f"Not drawn: {'; '.join(drawing.absent)}.")
    trials = trial_list(evidence)
    sheet = accuracy_sheet(evidence)
    tables = [page_table(table, plan, trials) for table in sheet.tables]
    choices, choice_notes = _choices(evidence, plan)
    return Section(
        recipe=recipe,
        plan=plan,
        drawing=drawing,
        tables=() if recipe.is_search else tuple(tables),
        notes=sheet.notes,
        folded=draw is not None,
        choices=choices,
        choice_notes=choice_notes,
        trials=tuple(trials),
        stored=len(keys),
        gaps=tuple(missing),
    )


def _choices(
    evidence: Evidence, plan: Outline
) -> tuple[tuple[PageTable, ...], tuple[str, ...]]:
    if all(block.tuned_by is None for block in evidence.recipe.blocks):
        return (), ()
    sheet = choices_sheet(evidence)
    return tuple(page_table(table, plan, []) for table in sheet.tables), sheet.notes
