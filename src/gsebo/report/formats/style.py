"""The text of one content of a table, in the signs of a format."""

from collections.abc import Callable
from dataclasses import dataclass

from gsebo.report.tables.table import Content, Missing, Value


@dataclass(frozen=True)
class Style:
    """The signs of a format.

    Attributes:
        escape: Makes any text safe.
        bold: Makes text that is safe already bold.
        plus_minus: Between a mean and its standard deviation.
        star: The mark of significance.
        minus: Of negative numbers.
    """

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    plus_minus: str = "±"
    star: str = "*"
    minus: str = "-"


def written(content: Content, style: Style) -> str:
    """Write a content; numbers have one digit behind the point."""
    if isinstance(content, str):
        return style.escape(" ".join(content.split()))
    brackets = "" if content.brackets is None else f" ({content.brackets:.1f})"
    if isinstance(content, Missing):
        return f"-{brackets}"
    return f"{_number(content, style)}{brackets}"


def _number(value: Value, style: Style) -> str:
    text = f"{value.mean:{'+' if value.signed else ''}.1f}"
    if float(text) == 0:
        # Neither +0.0 nor -0.0.
        text = "0.0"
    text = text.replace("-", style.minus)
    if value.std is not None:
        text += f" {style.plus_minus} {value.std:.1f}"
    if value.best:
        text = style.bold(text)
    if value.marked:
        text += style.star
    if value.seeds is not None:
        text += f", {value.seeds} seed{'' if value.seeds == 1 else 's'}"
    return text
