"""How much more accurate GSEBO is than the network alone, as edges get worse."""

from collections.abc import Iterable

from gsebo.report.entry import Entry
from gsebo.report.names import backbone_title
from gsebo.report.published import gain_place, published_gain
from gsebo.report.table import Content, Group, Missing, Row, Table, Value


def gain_table(found: Iterable[Entry]) -> Table | None:
    """Relative gains of GSEBO over vanilla, by false edges.

    Args:
        found: Entries of one dataset; other noise is left out.

    Returns:
        A line for each network, with the paper's gain where it prints one; ``None``
        where vanilla is not beside GSEBO.
    """
    lines: dict[tuple[str, str], dict[int, Entry]] = {}
    for one in found:
        count = one.cell.noise
        known = one.cell.method == "gsebo" and one.gain is not None
        if known and isinstance(count, int):
            lines.setdefault((one.cell.row, one.cell.setting), {})[count] = one
    if not lines:
        return None
    levels = sorted({level for line in lines.values() for level in line})
    kept = 2 if any(setting for _, setting in lines) else 1
    some = next(iter(lines.values()))
    dataset = next(iter(some.values())).cell.dataset
    rows = []
    for (network, setting), line in lines.items():
        contents: list[Content] = []
        for level in levels:
            ours = line[level].gain if level in line else None
            if (dataset, level) == gain_place():
                contents += _beside(published_gain(network), ours)
            else:
                contents.append(_percent(ours))
        labels = (backbone_title(network), setting)[:kept]
        rows.append(Row(labels, tuple(contents)))
    return Table(
        title="Gain of GSEBO over vanilla, in percent of vanilla's accuracy",
        labels=("network", "setting")[:kept],
        groups=tuple(_group(dataset, level) for level in levels),
        rows=tuple(rows),
        dataset=dataset,
    )


def _group(dataset: str, level: int) -> Group:
    if (dataset, level) == gain_place():
        return Group(str(level), ("paper", "ours", "difference"))
    return Group(str(level))


def _beside(paper: float | None, ours: float | None) -> list[Content]:
    difference = None if paper is None or ours is None else ours - paper
    return [_percent(paper), _percent(ours), _percent(difference)]


def _percent(figure: float | None) -> Content:
    return Missing() if figure is None else Value(figure, signed=True)
