"""What is shown of a recipe that attacks fitted models: accuracy before and after."""

from collections.abc import Iterable, Mapping
from typing import Literal

from gsebo.experiments import Cell, Result
from gsebo.experiments.protocols import EVASIONS, EvasionProtocol
from gsebo.experiments.result import AttackOutcome
from gsebo.names import lookup
from gsebo.report.evidence import Evidence, Summary
from gsebo.report.tables.claims import elsewhere_tables
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Sheet,
    Table,
    Value,
    lay_out,
)

_LABELS = ("network", "method", "dataset", "setting")
_GLOBAL, _LOCAL, _BY_PYG = "global", "local", "global_pyg"
Found = Mapping[Cell, Mapping[int, Result]]


def evasion_sheet(evidence: Evidence) -> Sheet:
    """Lay out what is stored for a recipe whose fitted models are attacked.

    A second table has those models that PyG's implementation attacked, too; what is
    published of other graphs follows.
    """
    recipe = evidence.recipe
    protocol = lookup("evasion", recipe.evasion or "", EVASIONS)
    found: Found = {
        cell: evidence.results.get(cell, {}) for cell in evidence.plan.cells()
    }
    # Cells of one network stand together, as in other tables.
    rows = list(dict.fromkeys(cell.row for cell in found))
    found = {
        cell: found[cell] for cell in sorted(found, key=lambda c: rows.index(c.row))
    }
    compared = {
        cell: results
        for cell, results in found.items()
        if any(_BY_PYG in (one.evasion or {}) for one in results.values())
    }
    tables = [_accuracy_table(protocol, found, recipe.seeds)]
    if compared:
        tables.append(_strength_table(protocol, compared, recipe.seeds))
    tables += elsewhere_tables(recipe.name)
    return Sheet(
        title=recipe.title,
        about=recipe.about,
        tables=tuple(tables),
        notes=(
            "Accuracy in percent: mean ± standard deviation over the seeds that are "
            f"stored, {recipe.seeds} unless it says another number.",
            "Pairs: how many change on average, for all nodes together or for each.",
        ),
        facts={
            "recipe": recipe.name,
            "seeds": recipe.seeds,
            "missing": evidence.missing,
            "failed": len(evidence.failed),
        },
        kind="cells",
        records=tuple(_records(recipe.name, found)),
    )


def _accuracy_table(protocol: EvasionProtocol, found: Found, seeds: int) -> Table:
    number = 2 * protocol.extreme_nodes + protocol.random_nodes
    groups = {
        "clean": ColumnGroup("no attack"),
        _GLOBAL: ColumnGroup(
            f"{protocol.global_percent} % of the edges", ("after", "pairs")
        ),
        _LOCAL: ColumnGroup(
            f"{number} nodes, {protocol.local_percent} % of their degree",
            ("before", "after", "pairs"),
        ),
    }
    lines = []
    for cell, results in found.items():
        clean = {s: one.test_accuracy for s, one in results.items()}
        overall, single = _outcomes(results, _GLOBAL), _outcomes(results, _LOCAL)
        line: dict[str, list[Content]] = {
            "clean": [_percent(clean, seeds)],
            _GLOBAL: [
                _percent(_shares(overall, "after"), seeds),
                _mean({s: one["flips"] for s, one in overall.items()}),
            ],
            _LOCAL: [
                _percent(_shares(single, "before"), seeds),
                _percent(_shares(single, "after"), seeds),
                _mean({s: one["flips"] / one["nodes"] for s, one in single.items()}),
            ],
        }
        lines.append((_names(cell), line))
    return lay_out("Accuracy under attack", _LABELS, groups, lines)


def _strength_table(protocol: EvasionProtocol, found: Found, seeds: int) -> Table:
    """Both implementations beside each other: is ours as strong as it should be?"""
    groups = {
        "clean": ColumnGroup("no attack"),
        _GLOBAL: ColumnGroup("ours"),
        _BY_PYG: ColumnGroup("PyG's"),
    }
    lines = []
    for cell, results in found.items():
        ours, theirs = _outcomes(results, _GLOBAL), _outcomes(results, _BY_PYG)
        line: dict[str, list[Content]] = {
            "clean": [_percent(_shares(ours, "before"), seeds)],
            _GLOBAL: [_percent(_shares(ours, "after"), seeds)],
            _BY_PYG: [_percent(_shares(theirs, "after"), seeds)],
        }
        lines.append((_names(cell), line))
    title = (
        f"Strength of the attack with {protocol.global_percent} % of the edges: "
        "accuracy after ours and after PyG's PRBCDAttack"
    )
    return lay_out(title, _LABELS, groups, lines)


def _outcomes(results: Mapping[int, Result], attack: str) -> dict[int, AttackOutcome]:
    return {
        seed: result.evasion[attack]
        for seed, result in results.items()
        if result.evasion is not None and attack in result.evasion
    }


def _shares(
    outcomes: Mapping[int, AttackOutcome], name: Literal["before", "after"]
) -> dict[int, float | None]:
    return {seed: one[name] for seed, one in outcomes.items()}


def _names(cell: Cell) -> tuple[str, ...]:
    return cell.row, cell.method, cell.dataset, cell.setting


def _percent(shares: Mapping[int, float | None], seeds: int) -> Content:
    known = {seed: 100 * share for seed, share in shares.items() if share is not None}
    summary = Summary.of(known)
    if summary is None:
        return Missing()
    number = summary.count if summary.count != seeds else None
    return Value(summary.mean, summary.std, seeds=number)


def _mean(numbers: Mapping[int, float]) -> Content:
    summary = Summary.of(numbers)
    return Missing() if summary is None else Value(summary.mean)


def _records(recipe: str, found: Found) -> Iterable[Mapping[str, object]]:
    for cell, results in found.items():
        for seed, result in results.items():
            yield {
                "recipe": recipe,
                "method": cell.method,
                "row": cell.row,
                "dataset": cell.dataset,
                "setting": cell.setting,
                "seed": seed,
                "test_accuracy": result.test_accuracy,
                "attacks": result.evasion,
            }
