"""Tables of the page: what `gsebo show` prints, with what the filter has to know."""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from gsebo.data import level_in_words, noise_parts
from gsebo.report.figures import Tags
from gsebo.report.formats.style import Style, written
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.outline import Outline
from gsebo.report.table import Content, Missing, Table, Value
from gsebo.report.trial_list import CellTrials

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
