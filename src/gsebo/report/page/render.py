"""Templates to one page of HTML that needs no other file and no network."""

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gsebo.report.evidence import Outline
from gsebo.report.figures.drawing import Tags
from gsebo.report.names import backbone_title, dataset_title, method_title

_FOLDER = "files"
# What comes later may overrule what comes before.
_STYLES = ("colours", "page", "filter", "figures", "tables", "narrow", "print")


def render(template: str, **content: object) -> str:
    """Fill a template that extends ``base.html``; style sheet and script are inside."""
    css = "\n".join(_text(f"{name}.css") for name in _STYLES)
    script = _text("page.js")
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
    return environment.get_template(template).render(
        content, css=Markup(css), script=Markup(script), policy=_policy(css, script)
    )


def _text(name: str) -> str:
    return files("gsebo.report.page").joinpath(_FOLDER, name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    """Let the browser run this script and this style sheet, and load nothing."""

    def digest(text: str) -> str:
        found = hashlib.sha256(text.encode("utf-8")).digest()
        return f"'sha256-{base64.b64encode(found).decode('ascii')}'"

    return (
        f"default-src 'none'; style-src {digest(css)}; script-src {digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _code(text: str) -> Markup:
    """Escape a text; what stands between backticks is code."""
    parts = (
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )
    return Markup("").join(parts)


def _tags(tags: Tags) -> Markup:
    """As attributes that the filter reads."""
    return Markup("").join(
        Markup(' data-{}="{}"').format(kind.removesuffix("s"), " ".join(names))
        for kind, names in vars(tags).items()
        if names
    )


def filter_choices(plans: list[Outline]) -> dict[str, tuple[str, dict[str, str]]]:
    """What the filter can choose, by the kind: its heading, and titles by name."""
    datasets = {name: dataset_title(name) for plan in plans for name in plan.datasets}
    networks = {name: backbone_title(name) for plan in plans for name in plan.rows}
    methods = {name: method_title(name) for plan in plans for name in plan.methods}
    return {
        "dataset": ("Dataset", datasets),
        "backbone": ("Network", networks),
        "method": ("Method", methods),
    }
