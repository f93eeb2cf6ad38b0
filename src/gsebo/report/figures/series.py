"""Lines with their spread."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from gsebo.report.evidence import Numbers
from gsebo.report.figures.look import Look
from gsebo.report.tables.summary import Summary

_DODGE = 0.07


def band(
    axes: Axes,
    steps: Numbers,
    mean: Numbers,
    spread: Numbers,
    look: Look,
    name: str | None = None,
) -> None:
    """Draw a line in a band of one standard deviation.

    Args:
        axes: Where.
        steps: Along the axis.
        mean: The line.
        spread: Half of the band's height.
        look: How.
        name: Of the artists, for the filter.
    """
    area = axes.fill_between(
        steps, mean - spread, mean + spread, color=look.colour, alpha=0.2, linewidth=0
    )
    # Markers tell lines apart without colour; one on every step would hide the line.
    (line,) = axes.plot(
        steps,
        mean,
        look.line,
        color=look.colour,
        marker=look.marker,
        markevery=max(len(steps) // 6, 1),
    )
    for artist in (area, line):
        artist.set_gid(name)


def points(
    axes: Axes,
    places: Sequence[float],
    summaries: Sequence[Summary | None],
    look: Look,
    name: str | None = None,
    *,
    joined: bool = True,
) -> None:
    """Draw means with bars of one standard deviation; what is ``None`` is left out.

    Args:
        axes: Where.
        places: Along the axis.
        summaries: One for each place.
        look: How.
        name: Of the artists, for the filter.
        joined: Whether by a line.
    """
    known = [(at, one) for at, one in zip(places, summaries, strict=True) if one]
    if not known:
        return
    line, caps, bars = axes.errorbar(
        [at for at, _ in known],
        [one.mean for _, one in known],
        yerr=[one.std for _, one in known],
        color=look.colour,
        linestyle=look.line if joined else "none",
        marker=look.marker,
        capsize=2,
        elinewidth=1,
    )
    for artist in (line, *caps, *bars):
        if artist is not None:
            artist.set_gid(name)


def dodged(
    axes: Axes, lines: Sequence[tuple[Sequence[Summary | None], Look, str]]
) -> None:
    """Draw points of several lines, moved apart a little along the axis.

    Args:
        axes: Where.
        lines: Means at 0, 1, 2 and so on, their look, and the name of the artists.
    """
    for number, (line, look, name) in enumerate(lines):
        shift = _DODGE * (number - (len(lines) - 1) / 2)
        points(axes, [place + shift for place in range(len(line))], line, look, name)


def level(
    axes: Axes, summary: Summary | None, look: Look, name: str | None = None
) -> None:
    """Draw a mean as a line across, in a band of one standard deviation."""
    if summary is None:
        return
    line = axes.axhline(summary.mean, color=look.colour, linestyle=look.line)
    area = axes.axhspan(
        summary.mean - summary.std,
        summary.mean + summary.std,
        color=look.colour,
        alpha=0.12,
        linewidth=0,
    )
    for artist in (line, area):
        artist.set_gid(name)
