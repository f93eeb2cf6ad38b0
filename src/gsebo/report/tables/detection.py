"""What is shown of a recipe that ranks edges: how well, and how truly."""

from collections.abc import Iterable, Mapping

from gsebo.data import level_in_words
from gsebo.experiments import Cell, Result
from gsebo.experiments.result import Detection
from gsebo.report.evidence import Evidence, Summary
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Sheet,
    Value,
    lay_out,
)

_LABELS = ("dataset", "noise", "setting")
_SIGNALS = {
    "score": "score",
    "cosine": "cosine",
    "features_agreement": "agreement by features",
    "agreement": "agreement",
    "learned_weight": "learned weight",
}
_NEAR = 0.1
Found = Mapping[Cell, Mapping[int, Detection]]


def detection_sheet(evidence: Evidence) -> Sheet:
    """Lay out what is stored for a recipe that ranks edges."""
    recipe = evidence.recipe
    found: Found = {
        cell: _detections(evidence.results.get(cell, {}))
        for cell in evidence.plan.cells()
    }
    near = [
        abs(one["stated"] - one["true"]) <= _NEAR
        for cell, each in found.items()
        for detection in each.values()
        for one in detection["precision"]
        if detection["num_false"]
    ]
    notes = [
        "In percent: mean ± standard deviation over the seeds that are stored.",
        "ROC: area under the curve; AP: average precision.",
    ]
    if near:
        notes.append(
            f"Of {len(near)} stated precisions on graphs with false edges, "
            f"{100 * sum(near) / len(near):.0f} % are within 10 points of the true one."
        )
    return Sheet(
        title=recipe.title,
        about=recipe.about,
        tables=(
            lay_out(
                "Finding false edges",
                _LABELS,
                {
                    name: ColumnGroup(title, ("ROC", "AP"))
                    for name, title in _SIGNALS.items()
                },
                [(_names(cell), _signals(each)) for cell, each in found.items()],
            ),
            lay_out(
                "Share of false edges among the first",
                _LABELS,
                {
                    first: ColumnGroup(str(first), ("stated", "true"))
                    for first in (50, 100, 500)
                },
                [(_names(cell), _precisions(each)) for cell, each in found.items()],
            ),
        ),
        notes=tuple(notes),
        facts={
            "recipe": recipe.name,
            "seeds": recipe.seeds,
            "missing": evidence.missing,
            "failed": len(evidence.failed),
        },
        kind="cells",
        records=tuple(_records(recipe.name, found)),
    )


def _detections(results: Mapping[int, Result]) -> dict[int, Detection]:
    return {
        seed: result.detection
        for seed, result in results.items()
        if result.detection is not None
    }


def _names(cell: Cell) -> tuple[str, ...]:
    noise = level_in_words(cell.noise) if cell.noise else ""
    return cell.dataset, noise, cell.setting


def _signals(each: Mapping[int, Detection]) -> dict[str, list[Content]]:
    """Area and average precision of each signal."""
    found: dict[str, list[Content]] = {}
    for name in _SIGNALS:
        have = {
            s: one["signals"][name] for s, one in each.items() if name in one["signals"]
        }
        found[name] = [
            _value({seed: one["area"] for seed, one in have.items()}),
            _value({seed: one["average_precision"] for seed, one in have.items()}),
        ]
    return found


def _precisions(each: Mapping[int, Detection]) -> dict[int, list[Content]]:
    found: dict[int, list[Content]] = {}
    for first in (50, 100, 500):
        have = {
            seed: one
            for seed, detection in each.items()
            for one in detection["precision"]
            if one["first"] == first
        }
        found[first] = [
            _value({seed: one["stated"] for seed, one in have.items()}),
            _value({seed: one["true"] for seed, one in have.items()}),
        ]
    return found


def _value(shares: Mapping[int, float]) -> Content:
    summary = Summary.of({seed: 100 * share for seed, share in shares.items()})
    return Missing() if summary is None else Value(summary.mean, summary.std)


def _records(recipe: str, found: Found) -> Iterable[Mapping[str, object]]:
    for cell, each in found.items():
        for seed, detection in each.items():
            yield {
                "recipe": recipe,
                "method": cell.method,
                "dataset": cell.dataset,
                "noise": cell.noise,
                "setting": cell.setting,
                "seed": seed,
                **detection,
            }
