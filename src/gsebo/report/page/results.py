"""The report: all recipes with their tables and figures, from stored results only."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gsebo.errors import InvalidInput
from gsebo.experiments import ExperimentRecipe, Result, Store, load_recipe, recipe_names
from gsebo.report.evidence import Evidence, Outline, gaps, gather_evidence, outline
from gsebo.report.figures import FIGURES
from gsebo.report.figures.drawing import Drawing
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.page.findings import findings
from gsebo.report.page.render import render
from gsebo.report.page.tables import CellTrials, PageTable, page_table, trial_list
from gsebo.report.tables.accuracy import accuracy_sheet
from gsebo.report.tables.choices import choices_sheet

# The paper's first; others follow by their names.
_ORDER = (
    "table1",
    "table2",
    "controls",
    "robustness",
    "convergence",
    "overfitting",
    "inter_class",
    "factors",
    "robustness_extended",
)


@dataclass(frozen=True)
class Section:
    """What the page shows of a recipe.

    Attributes:
        recipe: The recipe.
        plan: Its names.
        gaps: What is missing, in sentences.
        stored: Number of trials that came to their end.
        drawing: Its figure, if it has one and something is stored.
        tables: What ``gsebo show`` prints.
        notes: How to read them.
        folded: Whether the tables stand behind the figure, to be unfolded.
        choices: What validation chose.
        choice_notes: How to read that.
        trials: The trials of each cell.
    """

    recipe: ExperimentRecipe
    plan: Outline
    gaps: tuple[str, ...]
    stored: int = 0
    drawing: Drawing | None = None
    tables: tuple[PageTable, ...] = ()
    notes: tuple[str, ...] = ()
    folded: bool = False
    choices: tuple[PageTable, ...] = ()
    choice_notes: tuple[str, ...] = ()
    trials: tuple[CellTrials, ...] = ()


@dataclass(frozen=True)
class Page:
    """A report, and what it was made of."""

    html: str
    sections: tuple[Section, ...]


def build_page(store: Store, recipes: Iterable[ExperimentRecipe] | None = None) -> Page:
    """Make the report of some recipes, by default of all that come with the package.

    The same results always give the same page, to the byte.

    Raises:
        InvalidInput: There are no results, or they cannot be read.
    """
    stored = store.results()
    if not stored:
        raise InvalidInput(
            f"{store.folder} has no results; expected some, as `gsebo run table1` "
            "makes them."
        )
    if recipes is None:
        own = sorted(set(recipe_names()) - set(_ORDER))
        recipes = [load_recipe(name) for name in (*_ORDER, *own)]
    known = {recipe.name: gather_evidence(recipe, store) for recipe in recipes}
    sections = tuple(_section(evidence) for evidence in known.values())
    html = render(
        "results.html",
        sections=sections,
        provenance=_provenance(stored.values()),
        findings=findings(known),
        choices=_filter([one.plan for one in sections if one.stored]),
    )
    return Page(html, sections)


def _section(evidence: Evidence) -> Section:
    """Put together what is known of a recipe, whatever is missing."""
    recipe, plan = evidence.recipe, outline(evidence.recipe)
    keys = {one.key for some in evidence.results.values() for one in some.values()}
    missing = gaps(evidence, recipe.name)
    if not keys:
        return Section(recipe, plan, tuple(missing))
    draw = FIGURES.get(recipe.name)
    drawing = draw(evidence) if draw else None
    if draw and drawing is None:
        missing.append("There is not enough yet to draw the figure.")
    elif drawing and drawing.absent:
        missing.append(f"Not drawn: {'; '.join(drawing.absent)}.")
    trials = trial_list(evidence)
    sheet = accuracy_sheet(evidence)
    shown = () if recipe.is_search else sheet.tables
    tuned = any(block.tuned_by is not None for block in recipe.blocks)
    chosen = choices_sheet(evidence) if tuned else None
    return Section(
        recipe=recipe,
        plan=plan,
        gaps=tuple(missing),
        stored=len(keys),
        drawing=drawing,
        tables=tuple(page_table(table, plan, trials) for table in shown),
        notes=sheet.notes,
        folded=draw is not None,
        choices=tuple(page_table(t, plan) for t in chosen.tables) if chosen else (),
        choice_notes=chosen.notes if chosen else (),
        trials=tuple(trials),
    )


def _provenance(results: Iterable[Result]) -> dict[str, object]:
    """How many trials there are, when and where they ran, how long, and with what."""
    known = list(results)
    days = sorted({one.finished[:10] for one in known if one.finished})
    versions: dict[str, set[str]] = {}
    for result in known:
        for library, version in result.versions.items():
            versions.setdefault(library, set()).add(version)
    return {
        "finished": sum(result.ok for result in known),
        "failed": sum(not result.ok for result in known),
        # The first and the last, or one.
        "days": list(dict.fromkeys([*days[:1], *days[-1:]])),
        "hours": sum(result.seconds or 0 for result in known) / 3600,
        # Of equally many the order of the alphabet, not that of the files.
        "devices": dict(Counter(sorted(one.device for one in known)).most_common()),
        "versions": {name: sorted(found) for name, found in versions.items()},
    }


def _filter(plans: list[Outline]) -> dict[str, tuple[str, dict[str, str]]]:
    """What can be chosen, by the kind: its heading, and titles by name."""
    datasets = {name: dataset_title(name) for plan in plans for name in plan.datasets}
    networks = {name: backbone_title(name) for plan in plans for name in plan.rows}
    methods = {name: method_title(name) for plan in plans for name in plan.methods}
    return {
        "dataset": ("Dataset", datasets),
        "backbone": ("Network", networks),
        "method": ("Method", methods),
    }
