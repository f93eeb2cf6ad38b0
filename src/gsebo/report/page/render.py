"""Templates to one page of HTML that needs no other file and no network."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gsebo.report.names import backbone_title, dataset_title, method_title

if TYPE_CHECKING:
    from gsebo.report.evidence import Outline
    from gsebo.report.figures.drawing import Tags

_FOLDER = "files"
# What comes later may overrule what comes before.
_STYLES = ("colours", "page", "filter", "figures", "tables", "narrow", "print")


def render(
    template: str,
    *,
    styles: Sequence[str] = _STYLES,
    scripts: Sequence[str] = ("page",),
    other_styles: Iterable[str] = (),
    other_scripts: Iterable[str] = (),
    **content: object,
) -> str:
    """Fill a template that extends ``base.html``; style sheet and script are inside.

    Args:
        template: Name of a file.
        styles: Names of the style sheets, without their ending.
        scripts: Names of the scripts, which run as one.
        other_styles: Texts of style sheets that a script may add.
        other_scripts: Texts of scripts that stand elsewhere in the template, or that
            a script may add.
        **content: What the template speaks of.
    """
    css = "\n".join(page_file(f"{name}.css") for name in styles)
    script = "\n".join(page_file(f"{name}.js") for name in scripts)
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
        "svg": Markup,
    }
    policy = _policy((css, *other_styles), (script, *other_scripts))
    return environment.get_template(template).render(
        content, css=Markup(css), script=Markup(script), policy=policy
    )


def page_file(name: str) -> str:
    """The text of a file that pages are made of."""
    return files("gsebo.report.page").joinpath(_FOLDER, name).read_text("utf-8")


def _policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """Let the browser run these scripts and style sheets, and load nothing."""

    def digests(texts: Iterable[str]) -> str:
        found = (hashlib.sha256(text.encode("utf-8")).digest() for text in texts)
        return " ".join(
            f"'sha256-{base64.b64encode(one).decode('ascii')}'" for one in found
        )

    return (
        f"default-src 'none'; style-src {digests(styles)}; "
        f"script-src {digests(scripts)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _code(text: str) -> Markup:
    """Escape a text; what stands between backticks is code."""
    parts = (
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )
    return Markup("").join(parts)


def _tags(tags: "Tags") -> Markup:
    """As attributes that the filter reads."""
    return Markup("").join(
        Markup(' data-{}="{}"').format(kind.removesuffix("s"), " ".join(names))
        for kind, names in vars(tags).items()
        if names
    )


def filter_choices(plans: "list[Outline]") -> dict[str, tuple[str, dict[str, str]]]:
    """What the filter can choose, by the kind: its heading, and titles by name."""
    datasets = {name: dataset_title(name) for plan in plans for name in plan.datasets}
    networks = {name: backbone_title(name) for plan in plans for name in plan.rows}
    methods = {name: method_title(name) for plan in plans for name in plan.methods}
    return {
        "dataset": ("Dataset", datasets),
        "backbone": ("Network", networks),
        "method": ("Method", methods),
    }
