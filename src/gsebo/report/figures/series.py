"""Lines with their spread: the same method has the same style in every figure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from gsebo.report.evidence import Numbers, Summary

INK = "#000000"
# The palette of Okabe and Ito by the variables that the page's own style sheet sets,
# lighter where the background is dark.
_PALETTE = {
    "grid": "#b0b0b0",
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
    "sky": "#56b4e9",
}
FAINT, BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = _PALETTE.values()
COLOURS = {colour: f"var(--{name}, {colour})" for name, colour in _PALETTE.items()}
COLOURS[INK] = "currentColor"
"""What a colour of matplotlib's output becomes in the page."""


@dataclass(frozen=True)
class LineStyle:
    """Colour, and matplotlib's names of line and marker; any one of them will do."""

    colour: str
    line: str = "-"
    marker: str = "o"


_METHODS = {
    "gsebo": LineStyle(VERMILION, "-", "s"),
    "vanilla": LineStyle(INK, "--", "o"),
    "dropedge": LineStyle(SKY, "-.", "^"),
    "adaedge": LineStyle(GREEN, ":", "v"),
    "gaug_o": LineStyle(PURPLE, "-", "D"),
    "single_level": LineStyle(BLUE, "-.", "P"),
    "amortised": LineStyle(BLUE, "-", "D"),
    "train_val": LineStyle(ORANGE, "--", "X"),
    "mlp": LineStyle(GREEN, ":", "^"),
    "inoculated": LineStyle(VERMILION, "--", "P"),
    "auto": LineStyle(INK, ":", "*"),
    "prognn": LineStyle(PURPLE, "-", "s"),
    "gcn_jaccard": LineStyle(SKY, "--", "<"),
    "gcn_svd": LineStyle(SKY, ":", ">"),
    "rgcn": LineStyle(PURPLE, "-.", "v"),
    "gnnguard": LineStyle(GREEN, "-", "p"),
    "soft_median": LineStyle(SKY, "-", "h"),
    "hgsl": LineStyle(PURPLE, "--", "s"),
}
PAPER = LineStyle(INK, "-", "_")
NODES = {
    "train": LineStyle(BLUE, "-", "o"),
    "validation": LineStyle(ORANGE, "--", "s"),
    "test": LineStyle(GREEN, "-.", "^"),
}
EDGES = {
    "within": LineStyle(BLUE, "-", "o"),
    "between": LineStyle(ORANGE, "--", "s"),
    "false": LineStyle(PURPLE, ":", "D"),
}


def method_style(name: str) -> LineStyle:
    """Of a method; those that no figure was made for look alike."""
    return _METHODS.get(name, LineStyle(ORANGE, ":", "X"))


def band(
    axes: Axes,
    curve: tuple[Numbers, Numbers, Numbers],
    style: LineStyle,
    method: str | None = None,
) -> None:
    """Draw means at some steps in a band of one standard deviation.

    What is drawn is of a method, for the filter, as in the functions below.
    """
    steps, mean, spread = curve
    area = axes.fill_between(
        steps, mean - spread, mean + spread, color=style.colour, alpha=0.2, linewidth=0
    )
    # Markers tell lines apart without colour; one on every step would hide the line.
    (line,) = axes.plot(
        steps,
        mean,
        style.line,
        color=style.colour,
        marker=style.marker,
        markevery=max(len(steps) // 6, 1),
    )
    _tag((area, line), method)


def points(
    axes: Axes,
    places: Sequence[float],
    summaries: Sequence[Summary | None],
    style: LineStyle,
    method: str | None = None,
    *,
    joined: bool = True,
) -> None:
    """Draw means with bars of one standard deviation; what is ``None`` is left out."""
    known = [(at, one) for at, one in zip(places, summaries, strict=True) if one]
    if not known:
        return
    line, caps, bars = axes.errorbar(
        [at for at, _ in known],
        [one.mean for _, one in known],
        yerr=[one.std for _, one in known],
        color=style.colour,
        linestyle=style.line if joined else "none",
        marker=style.marker,
        capsize=2,
        elinewidth=1,
    )
    _tag((line, *caps, *bars), method)


# How far lines are moved apart, and how far all of them together at most.
_DODGE, _WIDEST = 0.07, 0.6


def over_levels(
    axes: Axes,
    lines: Sequence[tuple[LineStyle, str, Sequence[Summary | None]]],
    words: Sequence[str],
    label: str,
) -> None:
    """Draw lines over levels that are evenly spaced, moved apart a little.

    Each has a style, a method and a summary for each of the levels, whose words stand
    below the axis with a label for all of them.
    """
    apart = min(_DODGE, _WIDEST / max(len(lines), 1))
    for number, (style, method, summaries) in enumerate(lines):
        shift = apart * (number - (len(lines) - 1) / 2)
        at = [place + shift for place in range(len(words))]
        points(axes, at, summaries, style, method)
    ticks(axes, words, label)


def _tag(artists: Iterable[Artist | None], method: str | None) -> None:
    for artist in artists:
        if artist is not None and method is not None:
            artist.set_gid(f"data-method={method}")


def ticks(axes: Axes, words: Sequence[str], label: str = "") -> None:
    """Write words at 0, 1, 2 and so on, with half a place beyond both ends."""
    axes.set_xticks(range(len(words)), words)
    axes.set_xlim(-0.5, len(words) - 0.5)
    axes.set_xlabel(label)
