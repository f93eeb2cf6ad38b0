"""What became of edges within and between classes, as tables."""

from dataclasses import replace

from gsebo.data import level_in_words
from gsebo.experiments import Cell
from gsebo.report.edge_groups import EdgeGroup, edge_groups
from gsebo.report.evidence import Evidence
from gsebo.report.names import backbone_title, dataset_title
from gsebo.report.noise_levels import levels_by_kind, measured_by
from gsebo.report.table import Content, Group, Missing, Row, Table, Value

_TITLE = "Strength relative to the start, in percent"


def strength_tables(evidence: Evidence) -> list[Table]:
    """Mean strengths of each network: by dataset, and by each kind of noise."""
    found = {cell: edge_groups(results) for cell, results in evidence.results.items()}
    known = {cell: groups for cell, groups in found.items() if groups}
    tables = []
    clean = {cell: groups for cell, groups in known.items() if not cell.noise}
    if clean:
        tables.append(_table(_TITLE, clean, ("within", "between")))
    for dataset in dict.fromkeys(cell.dataset for cell in known if cell.noise):
        noisy = {
            cell: groups
            for cell, groups in known.items()
            if cell.dataset == dataset and cell.noise
        }
        for kind, levels in levels_by_kind(cell.noise for cell in noisy).items():
            part = {
                cell: groups
                for level in levels
                for cell, groups in noisy.items()
                if cell.noise == level
            }
            title = f"{_TITLE}: {dataset_title(dataset)}, by {measured_by(kind)}"
            shown = _table(title, part, ("within", "between", "false"))
            tables.append(replace(shown, dataset=dataset, noise=kind))
    return tables


def _table(
    title: str, found: dict[Cell, dict[str, EdgeGroup]], groups: tuple[str, ...]
) -> Table:
    columns = list(dict.fromkeys(_column(cell) for cell in found))
    rows: dict[tuple[str, str], dict[str, dict[str, EdgeGroup]]] = {}
    for cell, by_group in found.items():
        rows.setdefault((cell.row, cell.setting), {})[_column(cell)] = by_group
    kept = 2 if any(setting for _, setting in rows) else 1
    return Table(
        title=title,
        labels=("network", "setting")[:kept],
        groups=tuple(Group(column, groups) for column in columns),
        rows=tuple(
            Row(
                (backbone_title(network), setting)[:kept],
                tuple(
                    _content(line.get(column, {}).get(group))
                    for column in columns
                    for group in groups
                ),
            )
            for (network, setting), line in rows.items()
        ),
    )


def _column(cell: Cell) -> str:
    return level_in_words(cell.noise) if cell.noise else dataset_title(cell.dataset)


def _content(group: EdgeGroup | None) -> Content:
    if group is None:
        return Missing()
    return Value(100 * group.ratio.mean, 100 * group.ratio.std)
