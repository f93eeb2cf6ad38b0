"""The report: one page of HTML that needs nothing else, from stored results only."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gsebo.errors import InvalidInput
from gsebo.experiments import Recipe, Store, load_recipe, recipe_names
from gsebo.report.evidence import Evidence, gather
from gsebo.report.figures import Tags
from gsebo.report.findings import findings
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.page_table import PageRow
from gsebo.report.provenance import Provenance
from gsebo.report.section import Section, section

_FOLDER = "page_files"
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


def recipes_in_order() -> list[Recipe]:
    """All recipes that come with the package, the paper's first, searches last."""
    recipes = [load_recipe(name) for name in recipe_names()]
    places = {name: place for place, name in enumerate(_ORDER)}
    return sorted(
        recipes, key=lambda one: (places.get(one.name, len(places)), one.name)
    )


def build_page(store: Store, recipes: Iterable[Recipe] | None = None) -> Page:
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
        known[recipe.name] = gather(recipe, store)
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
        loader=PackageLoader("gsebo.report", _FOLDER),
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
    return files("gsebo.report").joinpath(_FOLDER, name).read_text("utf-8")


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
