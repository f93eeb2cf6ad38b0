"""What a figure is made of: panels in cards, cards in groups, and a legend."""

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.axes import Axes

from gsebo.report.figures.look import Look, method_look
from gsebo.report.figures.svg import draw_svg
from gsebo.report.names import method_title


@dataclass(frozen=True)
class Tags:
    """What a part of the page is about; the filter hides what does not match.

    Attributes:
        methods: Names of methods, or none where it does not depend on one.
        backbones: The same for networks.
        datasets: The same for datasets.
    """

    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        svg: The drawing.
        tags: What it is about.
        caption: What it shows, where a card has several.
    """

    svg: str
    tags: Tags
    caption: str = ""


@dataclass(frozen=True)
class Card:
    """Panels that belong together.

    Attributes:
        title: What they show.
        panels: At least one.
        note: A sentence with figures.
    """

    title: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass(frozen=True)
class CardGroup:
    """Cards under one heading.

    Attributes:
        title: May be empty where there is one group only.
        cards: In order.
        columns: How many stand side by side, where there is room.
    """

    title: str
    cards: tuple[Card, ...]
    columns: int = 4


@dataclass(frozen=True)
class Legend:
    """One line of a legend.

    Attributes:
        label: What is drawn so.
        svg: A sample.
        tags: What it is about.
    """

    label: str
    svg: str
    tags: Tags = Tags()


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        legend: Shared by all panels.
        groups: Of cards; empty ones are left out.
        reading: How to read it, in a sentence or two.
        absent: Names of the cards that nothing is stored for.
    """

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


def legend_of(
    name: str, label: str, look: Look, *, line: bool = True, tags: Tags | None = None
) -> Legend:
    """Draw a line of a legend.

    Args:
        name: That nothing else in the page has.
        label: What is drawn so.
        look: How.
        line: Whether by a line with a marker, or as an area.
        tags: What it is about.
    """

    def paint(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        if not line:
            axes.fill_between((0, 1), (0.1, 0.1), (0.9, 0.9), color=look.colour)
            return
        axes.plot((0, 1), (0.5, 0.5), look.line, color=look.colour, clip_on=False)
        axes.plot((0.5,), (0.5,), look.marker, color=look.colour, clip_on=False)

    none = {"left": 1, "right": 1, "bottom": 1, "top": 1}
    svg = draw_svg(name, label, paint, height=12, width=34, margins=none)
    return Legend(label, svg, tags or Tags())


def method_legend(name: str, methods: Iterable[str]) -> list[Legend]:
    """Draw the legend of a figure whose lines are methods.

    Args:
        name: Of the figure.
        methods: Names of the methods.
    """
    return [
        legend_of(
            f"{name}-legend-{method}",
            method_title(method),
            method_look(method),
            tags=Tags(methods=(method,)),
        )
        for method in methods
    ]
