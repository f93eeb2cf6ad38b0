"""Colours and lines: the same method looks the same in every figure."""

from dataclasses import dataclass
from typing import Any

WIDTH = 320
"""Natural width of a panel in pixels; on the page it grows and shrinks."""

INK = "#000000"
FAINT = "#b0b0b0"

_BLUE = "#0072b2"
_ORANGE = "#e69f00"
_GREEN = "#009e73"
_VERMILION = "#d55e00"
_PURPLE = "#cc79a7"
_SKY = "#56b4e9"

# The palette of Okabe and Ito. The page's own style sheet sets the variables, lighter
# where the background is dark.
COLOURS = {
    INK: "currentColor",
    FAINT: f"var(--grid, {FAINT})",
    _BLUE: f"var(--blue, {_BLUE})",
    _ORANGE: f"var(--orange, {_ORANGE})",
    _GREEN: f"var(--green, {_GREEN})",
    _VERMILION: f"var(--vermilion, {_VERMILION})",
    _PURPLE: f"var(--purple, {_PURPLE})",
    _SKY: f"var(--sky, {_SKY})",
}
"""What a colour of matplotlib's output becomes in the page."""

RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.labelsize": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.5,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "lines.solid_capstyle": "butt",
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Look:
    """How a series is drawn; colour, line and marker differ, any one of them will do.

    Attributes:
        colour: A key of :data:`COLOURS`.
        line: Matplotlib's name of a line style.
        marker: Matplotlib's name of a marker.
    """

    colour: str
    line: str = "-"
    marker: str = "o"


_METHODS = {
    "gsebo": Look(_VERMILION, "-", "s"),
    "vanilla": Look(INK, "--", "o"),
    "dropedge": Look(_SKY, "-.", "^"),
    "adaedge": Look(_GREEN, ":", "v"),
    "gaug_o": Look(_PURPLE, "-", "D"),
    "single_level": Look(_BLUE, "-.", "P"),
    "amortised": Look(_BLUE, "-", "D"),
    "train_val": Look(_ORANGE, "--", "X"),
    "mlp": Look(_GREEN, ":", "^"),
}
_OTHER = Look(_ORANGE, ":", "X")

PAPER = Look(INK, "-", "_")
"""Of what the paper says."""

NODES = {
    "train": Look(_BLUE, "-", "o"),
    "validation": Look(_ORANGE, "--", "s"),
    "test": Look(_GREEN, "-.", "^"),
}
"""Of the sets of nodes."""

EDGES = {
    "within": Look(_BLUE, "-", "o"),
    "between": Look(_ORANGE, "--", "s"),
    "false": Look(_PURPLE, ":", "D"),
}
"""Of the groups of edges."""


def method_look(name: str) -> Look:
    """Of a method; those that no figure was made for look alike."""
    return _METHODS.get(name, _OTHER)
