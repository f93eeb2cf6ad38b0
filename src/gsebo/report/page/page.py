"""The report: one page of HTML that needs nothing else, from stored results only."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gsebo.errors import InvalidInput
from gsebo.experiments import ExperimentRecipe, Result, Store, load_recipe, recipe_names
from gsebo.report.evidence import Evidence, Outline, gaps, gather_evidence, outline
from gsebo.report.figures import FIGURES
from gsebo.report.figures.drawing import Drawing, Tags
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.page.findings import findings
from gsebo.report.page.tables import (
    CellTrials,
    PageRow,
    PageTable,
    page_table,
    trial_list,
)
from gsebo.report.tables.accuracy import accuracy_sheet
from gsebo.report.tables.choices import choices_sheet


@dataclass(frozen=True)
class Provenance:
    """Facts about results.

    Attributes:
        finished: Number of trials that came to their end.
        failed: Number of those that did not.
        days: First and last day, as ``2026-11-15``, or none where nothing is noted.
        hours: For all fits together.
        devices: Number of trials by the device that they ran on, most first.
        versions: Versions of each library, one or several.
    """

    finished: int
    failed: int
    days: tuple[str, ...]
    hours: float
    devices: dict[str, int]
    versions: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, results: Iterable[Result]) -> "Provenance":
        """Of some results."""
        known = list(results)
        days = sorted({one.finished[:10] for one in known if one.finished})
        versions: dict[str, set[str]] = {}
        for result in known:
            for library, version in result.versions.items():
                versions.setdefault(library, set()).add(version)
        return cls(
            finished=sum(result.ok for result in known),
            failed=sum(not result.ok for result in known),
            days=tuple(dict.fromkeys((days[0], days[-1]) if days else ())),
            hours=sum(result.seconds or 0 for result in known) / 3600,
            # Of equally many the order of the alphabet, not that of the files.
            devices=dict(
                Counter(sorted(result.device for result in known)).most_common()
            ),
            versions={name: tuple(sorted(found)) for name, found in versions.items()},
        )


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

    recipe: ExperimentRecipe
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


_FOLDER = "files"
# What comes later may overrule what comes before.
_STYLES = (
    "colours.css",
    "page.css",
    "filter.css",
    "figures.css",
    "tables.css",
    "narrow.css",
    "print.css",
)
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
class Page:
    """A report.

    Attributes:
        html: All of it.
        sections: What it was made of.
    """

    html: str
    sections: tuple[Section, ...]


def recipes_in_order() -> list[ExperimentRecipe]:
    """All recipes that come with the package, the paper's first, searches last."""
    recipes = [load_recipe(name) for name in recipe_names()]
    places = {name: place for place, name in enumerate(_ORDER)}
    return sorted(
        recipes, key=lambda one: (places.get(one.name, len(places)), one.name)
    )


def build_page(store: Store, recipes: Iterable[ExperimentRecipe] | None = None) -> Page:
    """Make the report.

    The same results always give the same page, to the byte.

    Args:
        store: Where the results are.
        recipes: What to show, by default all that come with the package.

    Raises:
        InvalidInput: There are no results, or they cannot be read.
    """
    stored = store.results()
    if not stored:
        raise InvalidInput(
            f"{store.folder} has no results; expected some, as `gsebo run table1` "
            "makes them."
        )
    known: dict[str, Evidence] = {}
    sections = []
    for recipe in recipes_in_order() if recipes is None else recipes:
        known[recipe.name] = gather_evidence(recipe, store)
        sections.append(section(known[recipe.name]))
    css, script = "\n".join(map(_text, _STYLES)), _text("page.js")
    html = (
        _environment()
        .get_template("page.html")
        .render(
            sections=sections,
            provenance=Provenance.of(stored.values()),
            findings=findings(known),
            choices=_filter(sections),
            css=Markup(css),
            script=Markup(script),
            policy=_policy(css, script),
        )
    )
    return Page(html, tuple(sections))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gsebo.report.page", _FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _code,
        "tags": _tags,
        "method": method_title,
        "backbone": backbone_title,
        "dataset": dataset_title,
        "sections": _sections,
        "svg": Markup,
    }
    return environment


def _text(name: str) -> str:
    return files("gsebo.report.page").joinpath(_FOLDER, name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    """Let the browser run this script and this style sheet, and load nothing."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(css)}'",
            f"script-src '{_digest(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _code(text: str) -> Markup:
    """Escape a text; what stands between backticks is code."""
    parts = (escape(part) for part in text.split("`"))
    wrapped = (
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )
    return Markup("").join(wrapped)


def _tags(tags: Tags) -> Markup:
    """As attributes that the filter reads."""
    named = {
        "method": tags.methods,
        "backbone": tags.backbones,
        "dataset": tags.datasets,
    }
    return Markup("").join(
        Markup(' data-{}="{}"').format(kind, " ".join(names))
        for kind, names in named.items()
        if names
    )


def _sections(rows: Iterable[PageRow]) -> list[tuple[str, list[PageRow]]]:
    """Rows with the same first label together."""
    return [(key, list(some)) for key, some in groupby(rows, lambda row: row.labels[0])]


def _filter(sections: Sequence[Section]) -> dict[str, tuple[str, dict[str, str]]]:
    """What can be chosen, by the kind: its heading, and titles by name."""
    plans = [one.plan for one in sections if one.stored]

    def titles(
        names: Iterable[tuple[str, ...]], title: Callable[[str], str]
    ) -> dict[str, str]:
        return {name: title(name) for part in names for name in part}

    return {
        "dataset": ("Dataset", titles((p.datasets for p in plans), dataset_title)),
        "backbone": ("Network", titles((p.rows for p in plans), backbone_title)),
        "method": ("Method", titles((p.methods for p in plans), method_title)),
    }
