"""What searches on validation nodes chose for a recipe, as a sheet."""

import json
from collections.abc import Iterator

from gsebo.errors import InvalidInput
from gsebo.experiments import Cell, SearchChoice, TrialBlock
from gsebo.experiments.expand import places, setting_in_words
from gsebo.experiments.tuning import ScoredCandidate
from gsebo.report.evidence import Evidence
from gsebo.report.names import backbone_title, dataset_title, method_title
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Row,
    Sheet,
    Table,
    Value,
)

_NOTES = (
    "Accuracy in percent on the half of the validation nodes that scores candidates: "
    "mean over the seeds of the search.",
    "Not listed: where there was one candidate only.",
)


def choices_sheet(evidence: Evidence) -> Sheet:
    """Lay out what was taken for each method, network and dataset, and what came next.

    Raises:
        InvalidInput: The recipe leaves nothing to a search.
    """
    recipe = evidence.recipe
    rows_of = [row for block in recipe.blocks for row in block.backbones]
    chosen = sorted(_chosen(evidence), key=lambda one: rows_of.index(one[1].row))
    if not chosen:
        raise InvalidInput(
            f"choices of the recipe {recipe.name!r} asked for; it leaves none to a "
            "search."
        )
    settings = any(cell.setting for _, cell, _ in chosen)
    labels = ("network", "method", "setting", "dataset")
    kept = [place for place in range(4) if settings or place != 2]
    rows = []
    for _, cell, ranking in chosen:
        words = (
            backbone_title(cell.row),
            method_title(cell.method),
            cell.setting,
            dataset_title(cell.dataset),
        )
        contents = (*_described(cell, ranking, 0), *_described(cell, ranking, 1))
        rows.append(Row(tuple(words[place] for place in kept), contents))
    table = Table(
        title="",
        labels=tuple(labels[place] for place in kept),
        groups=(
            ColumnGroup("taken", ("parameters", "accuracy")),
            ColumnGroup("runner-up", ("parameters", "accuracy")),
        ),
        rows=tuple(rows),
    )
    return Sheet(
        title=f"{recipe.title}: what was chosen",
        about="",
        tables=(table,),
        notes=_NOTES,
        facts={"recipe": recipe.name, "missing": evidence.missing},
        kind="choices",
        records=tuple(_record(evidence, *one) for one in chosen),
    )


def _chosen(
    evidence: Evidence,
) -> Iterator[tuple[TrialBlock, Cell, list[ScoredCandidate]]]:
    """Blocks, cells and their candidates, best first; none before the search is run."""
    listed: set[Cell] = set()
    for block in evidence.recipe.blocks:
        if block.tuned_by is None:
            continue
        for method, row, dataset in places(block):
            cell = Cell(method, row, dataset, setting=block.label)
            choice = evidence.plan.choices.get(cell)
            alone = choice is not None and choice.tried[0].seeds == 0
            if cell not in listed and not alone:
                listed.add(cell)
                yield block, cell, _ranking(choice)


def _ranking(choice: SearchChoice | None) -> list[ScoredCandidate]:
    if choice is None:
        return []
    # The sort is stable, so that of equals the first stays first, as is taken.
    return sorted(choice.tried, key=lambda one: -one.score)


def _described(
    cell: Cell, ranking: list[ScoredCandidate], rank: int
) -> tuple[Content, Content]:
    if rank >= len(ranking):
        return Missing(), Missing()
    tried = ranking[rank]
    networks = {one.candidate.backbone for one in ranking} | {cell.row}
    network = {"backbone": tried.candidate.backbone} if len(networks) > 1 else {}
    words = setting_in_words(network | tried.candidate.parameters)
    return words, Value(100 * tried.score)


def _record(
    evidence: Evidence, block: TrialBlock, cell: Cell, ranking: list[ScoredCandidate]
) -> dict[str, object]:
    record: dict[str, object] = {
        "recipe": evidence.recipe.name,
        "search": block.tuned_by,
        "method": cell.method,
        "row": cell.row,
        "dataset": cell.dataset,
        "setting": cell.setting,
        "candidates": len(ranking),
    }
    for rank, name in enumerate(("taken", "runner_up")):
        tried = ranking[rank] if rank < len(ranking) else None
        record |= {
            f"{name}_network": tried.candidate.backbone if tried else None,
            f"{name}_parameters": json.dumps(tried.candidate.parameters)
            if tried
            else None,
            f"{name}_accuracy": 100 * tried.score if tried else None,
            f"{name}_seeds": tried.seeds if tried else None,
        }
    return record
