"""What automatic fits chose, where stored trials say so."""

from collections import Counter
from collections.abc import Iterable

from gsebo.data import level_in_words
from gsebo.experiments.result import StoredChoice
from gsebo.report.evidence import Evidence
from gsebo.report.names import backbone_title, method_title
from gsebo.report.tables.table import ColumnGroup, Content, Table, Value, lay_out

_LABELS = ("network", "method", "setting", "dataset", "noise")


def auto_table(evidence: Evidence) -> Table | None:
    """How often each method, width and preparation was chosen; ``None`` if unknown.

    Trials that were stored before choices were do not count.
    """
    groups = {
        name: ColumnGroup(name)
        for name in ("of", "method", "network", "width", "features", "look false")
    }
    lines = []
    for cell, results in evidence.results.items():
        found = [one.choice for one in results.values() if one.choice is not None]
        if not found:
            continue
        shift = 100 * sum(one["shift"] for one in found) / len(found)
        line: dict[str, list[Content]] = {
            "of": [str(len(found))],
            "method": [_counted(method_title(one["method"]) for one in found)],
            "network": [_counted(backbone_title(one["backbone"]) for one in found)],
            "width": [_counted(_width(one) for one in found)],
            "features": [_counted(one["preparation"] for one in found)],
            "look false": [Value(shift)],
        }
        noise = level_in_words(cell.noise) if cell.noise else ""
        lines.append(((cell.row, cell.method, cell.setting, cell.dataset, noise), line))
    if not lines:
        return None
    title = (
        "What was chosen, and by how many of the fits whose choice is stored; percent "
        "of the edges far from labels that look false beyond those near them"
    )
    return lay_out(title, _LABELS, groups, lines)


def _width(choice: StoredChoice) -> str:
    return "-" if choice["width"] is None else str(choice["width"])


def _counted(words: Iterable[str]) -> str:
    """Say how often each word is there, the most frequent first.

    >>> _counted(["mlp", "amortised", "amortised"])
    'amortised (2), mlp (1)'
    """
    counts = Counter(sorted(words)).most_common()
    return ", ".join(f"{word} ({number})" for word, number in counts)
