"""Tables of the page: what `gsebo show` prints, with what the filter has to know."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup, escape

from gsebo.data import level_in_words, noise_parts
from gsebo.experiments import Cell
from gsebo.experiments.plan import setting_in_words
from gsebo.report.evidence import Evidence, Outline, Summary
from gsebo.report.figures.drawing import Tags
from gsebo.report.formats import MARKS, Style
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.tables.entry import entries
from gsebo.report.tables.table import Content, Missing, Table, Value

_SHORT = 8
_STYLE = Style(
    escape=lambda text: str(escape(text)),
    bold=lambda text: f"<b>{text}</b>",
    minus="\N{MINUS SIGN}",
    mark=lambda verdict: f"<sup>{MARKS[verdict]}</sup>",
)


@dataclass(frozen=True)
class CellTrials:
    """The finished trials of one cell, and the name of their place in the page."""

    anchor: str
    cell: Cell
    # Network and parameters that a search took, in words.
    chosen: str
    ours: Summary | None
    seeds: str
    # First letters of the trials' names.
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
    """Write numbers, neighbors together.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    words = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda one: one[1] - one[0]):
        first, *others = (number for _, number in run)
        words.append(f"{first}-{others[-1]}" if others else str(first))
    return ", ".join(words)


def _chosen(evidence: Evidence, cell: Cell) -> str:
    choice = evidence.plan.choices.get(
        replace(cell, noise=0, labels="all", consistent=False)
    )
    if choice is None:
        return ""
    taken = choice.taken
    network = {} if taken.backbone == cell.row else {"backbone": taken.backbone}
    return setting_in_words(network | taken.parameters)


@dataclass(frozen=True)
class PageCell:
    """One content, and where its trials are listed, if they are."""

    html: Markup
    # "text", "number", "better", "worse" or "missing".
    kind: str
    anchor: str


@dataclass(frozen=True)
class PageRow:
    """One line, with the cells of each group of columns."""

    labels: tuple[str, ...]
    groups: list[list[PageCell]]
    tags: Tags


@dataclass(frozen=True)
class PageTable:
    """A table, and what it and the groups of its columns are about."""

    table: Table
    group_tags: tuple[Tags, ...]
    tags: Tags
    rows: tuple[PageRow, ...]

    def sections(self) -> list[tuple[str, list[PageRow]]]:
        """Rows with the same first label together."""
        found = groupby(self.rows, lambda row: row.labels[0])
        return [(label, list(rows)) for label, rows in found]


def page_table(
    table: Table, plan: Outline, trials: Sequence[CellTrials] = ()
) -> PageTable:
    """Make a table of a recipe ready for the page, with links to its trials."""
    groups = tuple(
        Tags(datasets=_named(plan.datasets, dataset_title, group.title))
        for group in table.groups
    )
    datasets = (table.dataset,) if table.dataset else ()
    whole = Tags(datasets=plan.datasets if len(plan.datasets) == 1 else datasets)
    anchors = _anchors(table, trials)
    rows = []
    for row in table.rows:
        named = dict(zip(table.labels, row.labels, strict=True))
        key = tuple(named.get(name, "") for name in ("network", "method", "setting"))
        contents = iter(row.contents)
        cells = []
        for group in table.groups:
            anchor = anchors.get((*key, group.title), "")
            cells.append([_cell(next(contents), one, anchor) for one in group.columns])
        about = Tags(
            _named(plan.methods, method_title, named.get("method")),
            _named(plan.rows, backbone_title, named.get("network")),
            _named(plan.datasets, dataset_title, named.get("dataset")),
        )
        rows.append(PageRow(row.labels, cells, about))
    return PageTable(table, groups, whole, tuple(rows))


def _anchors(table: Table, trials: Sequence[CellTrials]) -> dict[tuple[str, ...], str]:
    """Where the trials of a network, method, setting and column are listed."""
    found: dict[tuple[str, ...], str] = {}
    for one in trials:
        cell = one.cell
        other_noise = cell.noise and table.noise not in ("", noise_parts(cell.noise)[0])
        if table.dataset in ("", cell.dataset) and not other_noise:
            key = (backbone_title(cell.row), method_title(cell.method), cell.setting)
            for column in (dataset_title(cell.dataset), level_in_words(cell.noise)):
                found[*key, column] = one.anchor
    return found


def _cell(content: Content, heading: str, anchor: str) -> PageCell:
    kind = "text" if isinstance(content, str) else "number"
    if isinstance(content, Missing):
        kind = "missing"
    elif isinstance(content, Value) and heading == "difference":
        # As it is shown: what is rounded to nothing is neither.
        sign = round(content.mean, 1)
        kind = "worse" if sign < 0 else "better" if sign > 0 else "number"
    linked = heading in ("", "ours") and kind != "missing"
    # The style escapes whatever is not one of its signs.
    return PageCell(Markup(_STYLE.write(content)), kind, anchor if linked else "")


def _named(
    names: Iterable[str], title: Callable[[str], str], wanted: str | None
) -> tuple[str, ...]:
    return tuple(name for name in names if title(name) == wanted)
