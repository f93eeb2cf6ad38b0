"""Tables of the page: what `gsebo show` prints, with what the filter has to know."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from gsebo.data import level_in_words, noise_parts
from gsebo.experiments import Cell
from gsebo.experiments.expand import setting_in_words
from gsebo.report.evidence import Evidence, Outline
from gsebo.report.figures.drawing import Tags
from gsebo.report.formats.style import Style, written
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.tables.entry import entries
from gsebo.report.tables.summary import Summary
from gsebo.report.tables.table import Content, Missing, Table, Value

_SHORT = 8


@dataclass(frozen=True)
class CellTrials:
    """The trials of one cell.

    Attributes:
        anchor: Name of its place in the page.
        cell: The cell.
        chosen: Network and parameters that a search took, in words.
        ours: Mean and spread of what is stored.
        seeds: Of the finished trials, in words.
        ids: First letters of their names.
    """

    anchor: str
    cell: Cell
    chosen: str
    ours: Summary | None
    seeds: str
    ids: tuple[str, ...]


def trial_list(evidence: Evidence) -> list[CellTrials]:
    """List every cell of a recipe, stored or not."""
    found = []
    for number, (cell, entry) in enumerate(entries(evidence).items()):
        results = evidence.results.get(cell, {})
        found.append(
            CellTrials(
                anchor=f"{evidence.recipe.name}-cell-{number}",
                cell=cell,
                chosen=_chosen(evidence, cell),
                ours=entry.ours,
                seeds=ranges(results),
                ids=tuple(results[seed].key[:_SHORT] for seed in sorted(results)),
            )
        )
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers, neighbours together.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs
    )


def _chosen(evidence: Evidence, cell: Cell) -> str:
    for place, choice in evidence.plan.choices.items():
        same = (place.method, place.row, place.dataset, place.setting) == (
            cell.method,
            cell.row,
            cell.dataset,
            cell.setting,
        )
        if same:
            taken = choice.taken
            network = {} if taken.backbone == cell.row else {"backbone": taken.backbone}
            return setting_in_words(network | taken.parameters)
    return ""


_STYLE = Style(
    escape=lambda text: str(escape(text)),
    bold=lambda text: f"<b>{text}</b>",
    star="<sup>*</sup>",
    minus="\N{MINUS SIGN}",
)
_OWN = ("", "ours")


@dataclass(frozen=True)
class PageCell:
    """One content.

    Attributes:
        html: The text.
        kind: ``"text"``, ``"number"``, ``"better"``, ``"worse"`` or ``"missing"``.
        tags: What its column is about.
        anchor: Where its trials are listed, or empty.
        first: Whether it is the first of its group of columns.
    """

    html: Markup
    kind: str
    tags: Tags
    anchor: str
    first: bool


@dataclass(frozen=True)
class PageRow:
    """One line.

    Attributes:
        labels: What it is about.
        cells: Its contents.
        tags: What it is about, for the filter.
    """

    labels: tuple[str, ...]
    cells: tuple[PageCell, ...]
    tags: Tags


@dataclass(frozen=True)
class PageTable:
    """A table.

    Attributes:
        table: Its headings.
        group_tags: What the groups of its columns are about.
        tags: What all of it is about.
        rows: The lines.
    """

    table: Table
    group_tags: tuple[Tags, ...]
    tags: Tags
    rows: tuple[PageRow, ...]


def page_table(table: Table, plan: Outline, trials: list[CellTrials]) -> PageTable:
    """Make a table ready for the page.

    Args:
        table: What is to be shown.
        plan: The names that its recipe has.
        trials: Where the trials of its cells are listed.
    """
    datasets = {dataset_title(name): name for name in plan.datasets}
    groups = tuple(_datasets(datasets, group.title) for group in table.groups)
    whole = Tags(datasets=(table.dataset,) if table.dataset else ())
    if len(plan.datasets) == 1:
        whole = Tags(datasets=plan.datasets)
    anchors: dict[tuple[str, ...], str] = {
        (*_titles(one), place): one.anchor
        for one in trials
        if table.dataset in ("", one.cell.dataset) and _has_noise(table, one)
        for place in (dataset_title(one.cell.dataset), level_in_words(one.cell.noise))
    }
    rows = []
    for row in table.rows:
        named = dict(zip(table.labels, row.labels, strict=True))
        key = tuple(named.get(name, "") for name in ("network", "method", "setting"))
        cells = []
        contents = iter(row.contents)
        for group, tags in zip(table.groups, groups, strict=True):
            for place, heading in enumerate(group.columns):
                anchor = anchors.get((*key, group.title), "") if heading in _OWN else ""
                cell = _cell(next(contents), heading, tags, anchor, place == 0)
                cells.append(cell)
        rows.append(PageRow(row.labels, tuple(cells), _row_tags(named, plan)))
    return PageTable(table, groups, whole, tuple(rows))


def _cell(
    content: Content, heading: str, tags: Tags, anchor: str, first: bool
) -> PageCell:
    kind = "text" if isinstance(content, str) else "number"
    if isinstance(content, Missing):
        kind, anchor = "missing", ""
    elif isinstance(content, Value) and heading == "difference":
        # As it is shown: what is rounded to nothing is neither.
        sign = round(content.mean, 1)
        kind = "worse" if sign < 0 else "better" if sign > 0 else "number"
    # `written` escapes whatever is not one of the signs above.
    return PageCell(Markup(written(content, _STYLE)), kind, tags, anchor, first)


def _has_noise(table: Table, trials: CellTrials) -> bool:
    noise = trials.cell.noise
    return not noise or table.noise in ("", noise_parts(noise)[0])


def _titles(trials: CellTrials) -> tuple[str, str, str]:
    cell = trials.cell
    return backbone_title(cell.row), method_title(cell.method), cell.setting


def _datasets(titles: Mapping[str, str], title: str) -> Tags:
    return Tags(datasets=(titles[title],)) if title in titles else Tags()


def _row_tags(named: Mapping[str, str], plan: Outline) -> Tags:
    return Tags(
        methods=tuple(
            name for name in plan.methods if method_title(name) == named.get("method")
        ),
        backbones=tuple(
            name for name in plan.rows if backbone_title(name) == named.get("network")
        ),
        datasets=tuple(
            name
            for name in plan.datasets
            if dataset_title(name) == named.get("dataset")
        ),
    )
