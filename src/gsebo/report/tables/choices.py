"""What searches on validation nodes chose for a recipe, as a sheet."""

import json
from collections.abc import Iterator

from gsebo.errors import InvalidInput
from gsebo.experiments import Cell, TrialBlock
from gsebo.experiments.plan import ScoredCandidate, places, setting_in_words
from gsebo.report.evidence import Evidence
from gsebo.report.tables.table import ColumnGroup, Content, Sheet, Value, lay_out

_NOTES = (
    "Accuracy in percent on the half of the validation nodes that scores candidates: "
    "mean over the seeds of the search.",
    "Not listed: where there was one candidate only.",
)


def choices_sheet(evidence: Evidence) -> Sheet:
    """Lay out what was taken for each cell of a recipe, and what came next."""
    recipe = evidence.recipe
    rows_of = [row for block in recipe.blocks for row in block.backbones]
    chosen = sorted(_chosen(evidence), key=lambda one: rows_of.index(one[1].row))
    if not chosen:
        raise InvalidInput(
            f"choices of the recipe {recipe.name!r} asked for; it leaves none to a "
            "search."
        )
    groups = {
        rank: ColumnGroup(title, ("parameters", "accuracy"))
        for rank, title in enumerate(("taken", "runner-up"))
    }
    lines = []
    for _, cell, ranking in chosen:
        ranks = range(min(len(groups), len(ranking)))
        line = {rank: _described(cell, ranking, rank) for rank in ranks}
        lines.append(((cell.row, cell.method, cell.setting, cell.dataset), line))
    table = lay_out("", ("network", "method", "setting", "dataset"), groups, lines)
    return Sheet(
        title=f"{recipe.title}: what was chosen",
        about="",
        tables=(table,),
        notes=_NOTES,
        facts={"recipe": recipe.name, "missing": evidence.missing},
        kind="choices",
        records=tuple(_record(recipe.name, *one) for one in chosen),
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
            tried = choice.tried if choice else ()
            alone = choice is not None and tried[0].seeds == 0
            if cell not in listed and not alone:
                listed.add(cell)
                # The sort is stable: of equals the first stays first, as is taken.
                yield block, cell, sorted(tried, key=lambda one: -one.score)


def _described(
    cell: Cell, ranking: list[ScoredCandidate], rank: int
) -> tuple[Content, Content]:
    tried = ranking[rank]
    networks = {one.candidate.backbone for one in ranking} | {cell.row}
    network = {"backbone": tried.candidate.backbone} if len(networks) > 1 else {}
    words = setting_in_words(network | tried.candidate.parameters)
    return words, Value(100 * tried.score)


def _record(
    recipe: str, block: TrialBlock, cell: Cell, ranking: list[ScoredCandidate]
) -> dict[str, object]:
    record: dict[str, object] = {
        "recipe": recipe,
        "search": block.tuned_by,
        "method": cell.method,
        "row": cell.row,
        "dataset": cell.dataset,
        "setting": cell.setting,
        "candidates": len(ranking),
    }
    for rank, name in enumerate(("taken", "runner_up")):
        values: tuple[object, ...] = (None,) * 4
        if rank < len(ranking):
            tried = ranking[rank]
            network, parameters = tried.candidate.backbone, tried.candidate.parameters
            values = (network, json.dumps(parameters), 100 * tried.score, tried.seeds)
        names = ("network", "parameters", "accuracy", "seeds")
        record |= {f"{name}_{k}": v for k, v in zip(names, values, strict=True)}
    return record
