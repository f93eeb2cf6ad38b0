"""Training curves at a few steps, as a table."""

from gsebo.report.curves import mean_curve
from gsebo.report.evidence import Evidence
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.table import Content, Group, Missing, Row, Table, Value

_PLACES = (0.03, 0.1, 0.3, 1.0)
_COLUMNS = {
    "train_loss": "loss",
    "train_accuracy": "train",
    "val_accuracy": "val",
    "test_accuracy": "test",
}


def curve_table(evidence: Evidence) -> Table | None:
    """Mean and spread over seeds at a few places; ``None`` where no curve is stored."""
    longest = max(
        (
            int(one.curves["inner_steps"][-1])
            for results in evidence.results.values()
            for one in results.values()
            if one.curves
        ),
        default=0,
    )
    if not longest:
        return None
    steps = [round(longest * place) for place in _PLACES]
    rows = []
    for cell, results in evidence.results.items():
        curves = {name: mean_curve(results, name) for name in _COLUMNS}
        contents: list[Content] = []
        for step in steps:
            for curve in curves.values():
                contents.append(Missing())
                if curve is None or step > curve[0][-1]:
                    continue
                at = int((curve[0] >= step).argmax())
                contents[-1] = Value(100 * curve[1][at], 100 * curve[2][at])
        words = (method_title(cell.method), dataset_title(cell.dataset), cell.setting)
        rows.append(Row((backbone_title(cell.row), *words), tuple(contents)))
    return Table(
        title="After so many steps of the weights: training loss times 100, and "
        "accuracies in percent",
        labels=("network", "method", "dataset", "setting"),
        groups=tuple(Group(str(step), tuple(_COLUMNS.values())) for step in steps),
        rows=tuple(rows),
    )
