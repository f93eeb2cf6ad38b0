"""What a figure is made of: panels in cards, cards in groups, and a legend."""

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.axes import Axes

from gsebo.report.figures.series import LineStyle, method_style
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import method_title


@dataclass(frozen=True)
class Tags:
    """The names that a part of the page is about, if it depends on some.

    The filter hides what does not match.
    """

    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes, with what it shows where a card has several."""

    svg: str
    tags: Tags
    caption: str = ""


@dataclass(frozen=True)
class Card:
    """Panels that belong together, and a sentence with figures."""

    title: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass(frozen=True)
class CardGroup:
    """Cards under a heading, so many in a row where there is room."""

    title: str
    cards: tuple[Card, ...]
    columns: int = 4


@dataclass(frozen=True)
class Legend:
    """One line of a legend: what is drawn so, and a sample."""

    label: str
    svg: str
    tags: Tags


@dataclass(frozen=True)
class Drawing:
    """A figure, how to read it, and the names of cards that nothing is stored for."""

    legend: tuple[Legend, ...]
    groups: tuple[CardGroup, ...]
    reading: str
    absent: tuple[str, ...] = ()


def drawing(
    legend: Iterable[Legend],
    groups: Iterable[CardGroup],
    reading: str,
    absent: Iterable[str] = (),
) -> Drawing | None:
    """Put a figure together, without what is empty; ``None`` if nothing is left."""
    some = tuple(group for group in groups if group.cards)
    if not some:
        return None
    return Drawing(tuple(legend), some, reading, tuple(dict.fromkeys(absent)))


def legend_of(name: str, label: str, style: LineStyle, *methods: str) -> Legend:
    """Draw a line of a legend, by a name that nothing else in the page has."""

    def paint(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.plot((0, 1), (0.5, 0.5), style.line, color=style.colour, clip_on=False)
        axes.plot((0.5,), (0.5,), style.marker, color=style.colour, clip_on=False)

    margins = dict.fromkeys(("left", "right", "bottom", "top"), 1)
    svg = draw_svg(name, label, paint, height=12, width=34, margins=margins)
    return Legend(label, svg, Tags(methods))


def method_legend(name: str, methods: Iterable[str]) -> list[Legend]:
    """Draw the legend of a figure whose lines are methods."""
    return [
        legend_of(f"{name}-legend-{one}", method_title(one), method_style(one), one)
        for one in methods
    ]
