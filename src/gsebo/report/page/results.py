"""The report: all recipes with their tables and figures, from stored results only."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import mean

from gsebo.errors import InvalidInput
from gsebo.experiments import (
    ExperimentRecipe,
    KnownResults,
    Result,
    load_recipe,
    recipe_names,
)
from gsebo.report.evidence import (
    Evidence,
    Outline,
    edge_groups,
    gaps,
    gather_evidence,
    outline,
)
from gsebo.report.figures import FIGURES
from gsebo.report.figures.drawing import Drawing
from gsebo.report.names import backbone_title, gain_place, published_gain
from gsebo.report.page.render import filter_choices, render
from gsebo.report.page.tables import CellTrials, PageTable, page_table, trial_list
from gsebo.report.tables.entry import Entry, entries
from gsebo.report.tables.sheets import accuracy_sheet, choices_sheet, leaves_choices

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
    """What the page shows of a recipe, and what is missing, in sentences."""

    recipe: ExperimentRecipe
    plan: Outline
    gaps: tuple[str, ...]
    # Number of trials that came to their end.
    stored: int = 0
    drawing: Drawing | None = None
    # What ``gsebo show`` prints, and how to read it.
    tables: tuple[PageTable, ...] = ()
    notes: tuple[str, ...] = ()
    # Whether the tables stand behind the figure, to be unfolded.
    folded: bool = False
    # What validation chose.
    choices: tuple[PageTable, ...] = ()
    choice_notes: tuple[str, ...] = ()
    trials: tuple[CellTrials, ...] = ()


@dataclass(frozen=True)
class Page:
    """A report, and what it was made of."""

    html: str
    sections: tuple[Section, ...]


def build_page(
    store: KnownResults, recipes: Iterable[ExperimentRecipe] | None = None
) -> Page:
    """Make the report of some recipes, by default of all that come with the package.

    The same results always give the same page, to the byte.

    Raises:
        InvalidInput: There are no results, or they cannot be read.
    """
    stored = store.results()
    if not stored:
        raise InvalidInput(
            "no results are stored; expected some, as `gsebo run table1` makes them."
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
        findings=_findings(known),
        choices=filter_choices([one.plan for one in sections if one.stored]),
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
    chosen = choices_sheet(evidence) if leaves_choices(evidence) else None
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


def _findings(known: Mapping[str, Evidence]) -> list[str]:
    """Sum up what is stored, by recipe, in sentences for all that have enough of it."""
    makers: tuple[tuple[str, Callable[[Evidence], str | None]], ...] = (
        ("table1", _against_vanilla),
        ("table1", _against_paper),
        ("controls", _against_labels),
        ("robustness", _under_noise),
        ("inter_class", _edges),
    )
    said = (make(known[name]) for name, make in makers if name in known)
    return [sentence for sentence in said if sentence]


def _against_vanilla(evidence: Evidence) -> str | None:
    gained, printed = [], []
    for entry, plain in _of_gsebo(evidence, beside="vanilla"):
        if entry.ours is None or entry.vanilla is None:
            continue
        gained.append(entry.ours.mean - entry.vanilla.mean)
        if entry.paper and plain and plain.paper:
            printed.append(entry.paper[0] - plain.paper[0])
    if not gained:
        return None
    better = sum(one > 0 for one in gained)
    return (
        f"GSEBO is more accurate than the plain network in {better} of {len(gained)} "
        f"places, which has fewer labels; its mean gain is {mean(gained):+.1f} "
        f"points{f' (paper {mean(printed):+.1f})' if printed else ''}."
    )


def _against_paper(evidence: Evidence) -> str | None:
    differences = [
        abs(entry.difference)
        for entry in entries(evidence).values()
        if entry.difference is not None and not entry.cell.setting
    ]
    if not differences:
        return None
    near = sum(one <= 1 for one in differences)
    return (
        f"Of the {len(differences)} figures of table 1, {near} are within one point of "
        f"the paper's; the mean distance is {mean(differences):.1f} points."
    )


def _against_labels(evidence: Evidence) -> str | None:
    beside = [
        (entry, other.ours.mean > entry.ours.mean)
        for entry, other in _of_gsebo(evidence, beside="train_val")
        if entry.ours and other and other.ours
    ]
    if not beside:
        return None
    verdicts = Counter(entry.comparison.verdict for entry, _ in beside)
    return (
        "The plain network that learns from the validation labels too (train + val) is "
        f"more accurate than GSEBO in {sum(lost for _, lost in beside)} of "
        f"{len(beside)} places, significantly in {verdicts['worse']}, and "
        f"significantly less accurate in {verdicts['better']}."
    )


def _under_noise(evidence: Evidence) -> str | None:
    dataset, noise = gain_place()
    parts = []
    for entry, _ in _of_gsebo(evidence):
        here = (entry.cell.dataset, entry.cell.noise) == (dataset, noise)
        if not here or entry.gain is None:
            continue
        paper = published_gain(entry.cell.row)
        beside = "" if paper is None else f" (paper {_percent(paper)})"
        parts.append(f"{backbone_title(entry.cell.row)} {_percent(entry.gain)}{beside}")
    if not parts:
        return None
    return (
        f"With {noise} false edges, GSEBO's gain relative to the plain network is: "
        f"{', '.join(parts)}."
    )


def _edges(evidence: Evidence) -> str | None:
    within, between = [], []
    for cell, results in evidence.results.items():
        groups = edge_groups(results)
        if not cell.noise and {"within", "between"} <= groups.keys():
            within.append(groups["within"].ratio.mean)
            between.append(groups["between"].ratio.mean)
    if not within:
        return None
    lower = sum(b < w for w, b in zip(within, between, strict=True))
    return (
        f"Without false edges, edges within classes end at {mean(within):.3f} times "
        f"their start on average and edges between classes at {mean(between):.3f}; the "
        f"latter are weaker in {lower} of {len(within)} places."
    )


def _percent(number: float) -> str:
    return f"{number:+.1f}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def _of_gsebo(
    evidence: Evidence, beside: str = "vanilla"
) -> list[tuple[Entry, Entry | None]]:
    """Stored entries of GSEBO without a setting, and another method's beside each."""
    found = entries(evidence)
    return [
        (entry, found.get(replace(cell, method=beside)))
        for cell, entry in found.items()
        if cell.method == "gsebo" and not cell.setting and entry.ours
    ]
