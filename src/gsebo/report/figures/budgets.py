"""Accuracy as an attack may change more: one panel for each graph, all methods in it.

A budget is either a level of noise of one dataset, or a dataset of its own of a family.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from gsebo.data import DATASETS, NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.experiments import Cell
from gsebo.report.evidence import Evidence, Summary, levels_by_kind, measured_by
from gsebo.report.figures.drawing import Drawing, Panel, Tags, draw_svg
from gsebo.report.figures.series import LineStyle, method_style, over_levels
from gsebo.report.names import backbone_title, dataset_title, method_title

_NO_EDGES = "mlp"
_Place = tuple[str, NoiseSpec]
# Lines and markers of the further settings of a method, in their order.
_OTHERS = (("-.", "d"), (":", "v"), ("--", "<"))
# Network, method and setting of the cells that are one line.
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class _Budgets:
    """The budgets of one panel: where each was tried, and how it is written."""

    title: str
    places: tuple[_Place, ...]
    words: tuple[str, ...]
    label: str  # Of the axis.
    against: str  # What it is, in a sentence.


@dataclass(frozen=True)
class _Line:
    label: str
    style: LineStyle
    method: str


def over_budgets(evidence: Evidence) -> Drawing | None:
    """One card for each family of attacked graphs, or graph and kind of noise."""
    figure = Drawing(
        evidence.recipe.name,
        f"Test {evidence.measured('{0.title} {0.unit}')}. "
        "Points are means over seeds, bars one standard deviation; methods are moved "
        "apart a little along the axis, whose places are evenly spaced.",
    )
    lines = _lines(evidence.results)
    for number, line in enumerate(lines.values()):
        figure.add_line(str(number), line.label, line.style, line.method)
    figure.add_group(f"Test {evidence.measured()}", columns=2)
    for number, budgets in enumerate(_budgets(evidence.results)):
        if panel := _panel(evidence, budgets, lines, number):
            figure.add_card(budgets.title, panel)
        else:
            figure.absent.append(budgets.title)
    return figure.finished()


def _lines(cells: Iterable[Cell]) -> dict[_Key, _Line]:
    """A line for each network, method and setting; few look the same."""
    found: dict[_Key, _Line] = {}
    cells = list(cells)
    networks = {cell.row for cell in cells if cell.row != _NO_EDGES}
    for cell in cells:
        key = (cell.row, cell.method, cell.setting)
        if key in found:
            continue
        beside = cell.row == _NO_EDGES and cell.method != _NO_EDGES
        title = method_title(cell.method)
        named = beside or (len(networks) > 1 and cell.row != _NO_EDGES)
        name = f"{backbone_title(cell.row)}, {title}" if named else title
        label = ", ".join(filter(None, (name, cell.setting)))
        style = method_style(_NO_EDGES if beside else cell.method)
        # Another setting of a method has its colour.
        others = (replace(style, line=line, marker=marker) for line, marker in _OTHERS)
        taken = {line.style for line in found.values()}
        style = next((one for one in (style, *others) if one not in taken), style)
        found[key] = _Line(label, style, cell.method)
    return found


def _budgets(cells: Iterable[Cell]) -> list[_Budgets]:
    places = list(dict.fromkeys((cell.dataset, cell.noise) for cell in cells))
    found: list[_Budgets] = []
    for dataset in dict.fromkeys(dataset for dataset, _ in places):
        noise = [level for where, level in places if where == dataset]
        if not any(noise):
            continue
        for kind, levels in levels_by_kind(noise).items():
            unit = ", %" if NOISE_KINDS[kind].in_percent else ""
            found.append(
                _Budgets(
                    dataset_title(dataset),
                    tuple((dataset, level) for level in levels),
                    tuple(str(noise_parts(level)[1]) for level in levels),
                    f"{NOISE_KINDS[kind].words}{unit}",
                    measured_by(kind),
                )
            )
    for family in dict.fromkeys(DATASETS[dataset].family for dataset, _ in places):
        members = [one for one in places if DATASETS[one[0]].family == family]
        if family:
            parts = [DATASETS[name].budget.partition(" ") for name, _ in members]
            words, label = tuple(number for number, *_ in parts), parts[0][2]
            found.append(
                _Budgets(
                    family, tuple(members), words, label, "the budget of the attack"
                )
            )
    return found


def _panel(
    evidence: Evidence, budgets: _Budgets, lines: Mapping[_Key, _Line], number: int
) -> Panel | None:
    found: dict[_Line, list[Summary | None]] = {}
    here = [
        one for one in evidence.results if (one.dataset, one.noise) in budgets.places
    ]
    asked = Counter((cell.row, cell.method, cell.setting) for cell in here)
    for cell in here:
        places = asked[cell.row, cell.method, cell.setting]
        if places == 1 < len(budgets.places):
            # One of several places alone is no line.
            continue
        place, summary = (cell.dataset, cell.noise), evidence.summary(cell)
        if summary is not None:
            line = lines[cell.row, cell.method, cell.setting]
            shown = found.setdefault(line, [None] * len(budgets.places))
            shown[budgets.places.index(place)] = summary
    if not found:
        return None

    def paint(axes: Axes) -> None:
        drawn = [(line.style, line.method, each) for line, each in found.items()]
        over_levels(axes, drawn, budgets.words, budgets.label)

    title = (
        f"Test {evidence.measured()} of {'; '.join(one.label for one in found)} on "
        f"{budgets.title} against {budgets.against}"
    )
    svg = draw_svg(
        f"{evidence.recipe.name}-{number}", title, paint, height=340, width=480
    )
    tags = Tags(
        tuple(dict.fromkeys(line.method for line in found)),
        datasets=tuple(dict.fromkeys(dataset for dataset, _ in budgets.places)),
    )
    return Panel(svg, tags, f"test {evidence.measured('{0.axis}')}")
