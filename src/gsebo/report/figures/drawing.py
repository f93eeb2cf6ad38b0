"""What a figure is made of: panels in cards, cards in groups, and a legend.

Matplotlib writes files of their own: black on white, with names that repeat from file
to file. Here they lose what they do not need, take the page's colours, and every name
gets the panel's name in front, so that they can stand inside one page.
"""

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gsebo.report.figures.series import COLOURS, FAINT, LineStyle, method_style
from gsebo.report.names import method_title


@dataclass(frozen=True)
class Tags:
    """The names that a part of the page is about, if any; the filter reads them."""

    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes, or a line of a legend, and what it shows."""

    svg: str
    tags: Tags
    caption: str


@dataclass(frozen=True)
class Card:
    """Panels that belong together, and a sentence with figures."""

    title: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass
class CardGroup:
    """Cards under a heading, so many in a row where there is room."""

    title: str
    columns: int
    cards: list[Card] = field(default_factory=list)


@dataclass
class Drawing:
    """A figure that is put together, how to read it, and what it has no results for."""

    # That nothing else in the page has.
    name: str
    reading: str
    legend: list[Panel] = field(default_factory=list)
    groups: list[CardGroup] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def add_line(self, name: str, label: str, style: LineStyle, *methods: str) -> None:
        """Add a line to the legend."""

        def paint(axes: Axes) -> None:
            axes.set_axis_off()
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1)
            axes.plot((0, 1), (0.5, 0.5), style.line, color=style.colour, clip_on=False)
            axes.plot((0.5,), (0.5,), style.marker, color=style.colour, clip_on=False)

        margins = dict.fromkeys(("left", "right", "bottom", "top"), 1)
        name = f"{self.name}-legend-{name}"
        svg = draw_svg(name, label, paint, height=12, width=34, margins=margins)
        self.legend.append(Panel(svg, Tags(methods), label))

    def add_methods(self, methods: Iterable[str]) -> None:
        """Add lines of methods to the legend."""
        for one in methods:
            self.add_line(one, method_title(one), method_style(one), one)

    def add_group(self, title: str, columns: int = 4) -> None:
        """Begin with a new group, to which cards are added."""
        self.groups.append(CardGroup(title, columns))

    def add_card(self, title: str, *panels: Panel, note: str = "") -> None:
        """Add a card to the last group."""
        self.groups[-1].cards.append(Card(title, panels, note))

    def finished(self) -> "Drawing | None":
        """The figure without what is empty; ``None`` if nothing is left."""
        self.groups = [group for group in self.groups if group.cards]
        self.absent = list(dict.fromkeys(self.absent))
        return self if self.groups else None


_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "lines.solid_capstyle": "butt",
}
# Natural width of a panel in pixels; on the page it grows and shrinks.
_WIDTH = 320
_MARGINS = {"left": 46, "right": 14, "bottom": 38, "top": 10}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"#([\w-]+)")

ElementTree.register_namespace("", _SVG.strip("{}"))


def draw_svg(
    name: str,
    title: str,
    paint: Callable[[Axes], None],
    *,
    height: int,
    width: int = _WIDTH,
    margins: dict[str, int] | None = None,
) -> str:
    """Draw one panel.

    Its name is one that no other panel of the page has, its title for those who cannot
    see it, and its sizes are natural ones in pixels. An artist whose ``gid`` is
    ``data-KIND=NAME`` gets that attribute, which the page's filter reads.
    """
    room = _MARGINS | (margins or {})
    buffer = io.StringIO()
    # The reader's own matplotlibrc must not change the page.
    with style.context(["default", _SETTINGS], after_reset=True):
        figure = Figure(figsize=(width / 72, height / 72))
        figure.subplots_adjust(
            left=room["left"] / width,
            right=1 - room["right"] / width,
            bottom=room["bottom"] / height,
            top=1 - room["top"] / height,
        )
        paint(figure.add_subplot())
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )
    return _for_page(buffer.getvalue(), name, title)


def _for_page(text: str, name: str, title: str) -> str:
    root = ElementTree.fromstring(text)
    for child in list(root):
        # The style sheet has two constants, which become attributes of the root.
        sheet = child.tag == f"{_SVG}defs" and child.find(f"{_SVG}style") is not None
        if sheet or child.tag == f"{_SVG}metadata":
            root.remove(child)
    for element in root.iter():
        _to_attributes(element)
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    _rename(root, name)
    _unwrap_groups(root)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    # What has no colour of its own is black to matplotlib.
    root.attrib |= {"role": "img", "aria-label": title, "fill": "currentColor"}
    heading = ElementTree.Element(f"{_SVG}title")
    heading.text = title
    root.insert(0, heading)
    return re.sub(r">\s+<", "><", ElementTree.tostring(root, encoding="unicode"))


def _to_attributes(element: ElementTree.Element) -> None:
    """Write styles as attributes, which a page without inline styles may have."""
    for part in element.attrib.pop("style", "").split(";"):
        key, _, value = (word.strip() for word in part.partition(":"))
        if key == "font":
            # The family is the page's own.
            element.set("font-size", value.split("px")[0])
        elif key:
            element.set(key, COLOURS.get(value, value))
    for key in ("d", "x", "y", "width", "height", "transform", "stroke-width"):
        if key in element.attrib:
            element.set(key, _LONG_NUMBER.sub(_short, element.attrib[key]))
    if link := element.attrib.pop(_LINK, None):
        element.set("href", link)


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")


def _rename(root: ElementTree.Element, name: str) -> None:
    """Keep names that are referred to, with the panel's in front, and tags."""
    referring = [
        (element, key)
        for element in root.iter()
        for key in ("href", "clip-path")
        if key in element.attrib
    ]
    used = {
        reference
        for element, key in referring
        for reference in _REFERENCE.findall(element.attrib[key])
    }
    new: dict[str, str] = {}
    for element in root.iter():
        old = element.attrib.pop("id", "")
        if old in used:
            new[old] = f"{name}-{len(new)}"
            element.set("id", new[old])
        elif old.startswith("data-"):
            element.set(*old.split("=", 1))
    for element, key in referring:
        renamed = _REFERENCE.sub(lambda m: f"#{new[m[1]]}", element.attrib[key])
        element.set(key, renamed)


def _unwrap_groups(root: ElementTree.Element) -> None:
    """Take groups away that say nothing and hold one element only."""
    for element in list(root.iter()):
        for place, child in enumerate(list(element)):
            while child.tag == f"{_SVG}g" and not child.attrib and len(child) == 1:
                child = child[0]
            element[place] = child
