"""What is shown of a recipe: accuracies beside the paper's, and what was chosen."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

from gsebo.data import DATASETS, NoiseSpec, level_in_words
from gsebo.data.noise.registry import INTER_CLASS
from gsebo.errors import InvalidInput
from gsebo.experiments import Cell, ExperimentRecipe, TrialBlock
from gsebo.experiments.plan import ScoredCandidate, places, setting_in_words
from gsebo.metrics import METRICS
from gsebo.report.evidence import (
    Evidence,
    PooledEdges,
    edge_groups,
    levels_by_kind,
    mean_curve,
    measured_by,
)
from gsebo.report.names import (
    dataset_title,
    gain_place,
    published_gain,
    published_source,
)
from gsebo.report.tables.auto_choices import auto_table
from gsebo.report.tables.claims import claim_tables, elsewhere_tables
from gsebo.report.tables.detection import detection_sheet
from gsebo.report.tables.entry import Entry, entries
from gsebo.report.tables.evasion import evasion_sheet
from gsebo.report.tables.over_places import (
    mark_notes,
    place_notes,
    place_table,
    place_tests,
)
from gsebo.report.tables.significance import Comparison, learns_from_val
from gsebo.report.tables.table import (
    ColumnGroup,
    Content,
    Missing,
    Sheet,
    Table,
    Value,
    lay_out,
)

_BESIDE = ("paper", "ours", "difference")
_SCORING_NODES = "the half of the validation nodes that scores candidates"


def accuracy_sheet(evidence: Evidence, *, brackets: bool = False) -> Sheet:
    """Lay out what is stored for a recipe.

    Columns are datasets, with a table for each family of attacked ones; where cells
    differ by their noise there is a table for each dataset and kind of noise, and
    columns are levels of it. A test over all networks and graphs follows where there
    are enough of them, what the paper sums up, what an automatic fit chose, what became
    of the edges where the recipe is about them, and curves where they are stored. The
    paper's mean has columns of its own, or stands in brackets behind ours, as it always
    does where columns are budgets.

    Args:
        evidence: What is stored for a recipe.
        brackets: Whether the paper's means stand in brackets.
    """
    if evidence.recipe.ranks_edges:
        return detection_sheet(evidence)
    if evidence.recipe.evasion is not None:
        return evasion_sheet(evidence)
    recipe, found = evidence.recipe, entries(evidence)
    if not found:
        raise InvalidInput(
            f"the recipe {recipe.name!r} has no cells: none of its methods takes one "
            "of its networks."
        )
    planned = evidence.plan.cells().values()
    numbers = (len({trial.seed for trial in trials}) for trials in planned)
    seeds = max(numbers, default=recipe.seeds)
    brackets = brackets or recipe.by_labels
    brackets = brackets or any(DATASETS[cell.dataset].family for cell in found)
    tables = _accuracy_tables(recipe, _marked(found), seeds, brackets)
    over_places = place_tests(found)
    claimed, claims = claim_tables(recipe.name, found)
    further = [place_table(over_places), *claimed, auto_table(evidence)]
    if recipe.shows_edges:
        further += strength_tables(evidence)
    further += [curve_table(evidence), *elsewhere_tables(recipe.name)]
    tables += [one for one in further if one is not None]
    return Sheet(
        title=recipe.title,
        about=recipe.about,
        tables=tuple(tables),
        notes=(
            *_notes(evidence, found.values(), seeds, brackets),
            *place_notes(over_places),
            *_reasons(recipe),
            *claims,
        ),
        facts={
            "recipe": recipe.name,
            "seeds": seeds,
            "missing": evidence.missing,
            "failed": len(evidence.failed),
            "over_places": [one.record() for one in over_places],
        },
        kind="cells",
        records=tuple(_record(recipe, entry) for entry in found.values()),
    )


def _marked(found: Mapping[Cell, Entry]) -> Mapping[Cell, Entry]:
    """The same; without marks where all of them would say that nothing is tested."""
    if any(entry.comparison.p is not None for entry in found.values()):
        return found
    return {c: replace(one, comparison=Comparison()) for c, one in found.items()}


_BY_LABELS = {
    False: "Labels of the training nodes; those of validation nodes choose",
    True: "Labels of the training and of the validation nodes",
}


def _accuracy_tables(
    recipe: ExperimentRecipe, found: Mapping[Cell, Entry], seeds: int, brackets: bool
) -> list[Table]:
    tables: list[Table] = []
    if recipe.by_labels:
        for also_val, title in _BY_LABELS.items():
            part = {c: e for c, e in found.items() if learns_from_val(c) == also_val}
            if part:
                tables.append(_table(title, part, seeds, brackets, recipe=recipe))
        return tables
    if len({cell.noise for cell in found}) > 1:
        noisy = {cell.dataset for cell in found if cell.noise}
        for dataset in dict.fromkeys(c.dataset for c in found if c.dataset in noisy):
            part = {c: one for c, one in found.items() if c.dataset == dataset}
            tables += _tables_by_noise(dataset, part, seeds, brackets)
        clean = {c: one for c, one in found.items() if c.dataset not in noisy}
        if clean:
            tables.append(_table("Graphs as they are", clean, seeds, brackets))
        return tables
    families = dict.fromkeys(DATASETS[cell.dataset].family for cell in found)
    for family in families:
        part = {c: e for c, e in found.items() if DATASETS[c.dataset].family == family}
        tables.append(_table(family, part, seeds, brackets))
    return tables


def _letters(recipe: ExperimentRecipe | None) -> dict[tuple[str, str], str]:
    """By method and dataset: which note says why they are not there together."""
    return {
        (method, dataset): letter
        for letter, cells in zip(
            ascii_lowercase, recipe.absent if recipe else (), strict=False
        )
        for method in cells.methods
        for dataset in cells.datasets
    }


def _reasons(recipe: ExperimentRecipe) -> Iterator[str]:
    for letter, cells in zip(ascii_lowercase, recipe.absent, strict=False):
        yield f"{letter}: {cells.reason.strip()}"


def _tables_by_noise(
    dataset: str, found: Mapping[Cell, Entry], seeds: int, brackets: bool
) -> Iterator[Table]:
    for kind, levels in levels_by_kind(cell.noise for cell in found).items():
        part = {cell: one for cell, one in found.items() if cell.noise in levels}
        title = f"{dataset_title(dataset)}, by {measured_by(kind)}"
        shown = _table(title, part, seeds, brackets, levels)
        yield replace(shown, dataset=dataset, noise=kind)
        # The paper prints gains, and those of this kind only.
        gains = _gain_table(dataset, part.values()) if kind == INTER_CLASS else None
        if gains:
            yield gains


def _table(
    title: str,
    found: Mapping[Cell, Entry],
    seeds: int,
    brackets: bool,
    levels: Sequence[NoiseSpec] = (),
    recipe: ExperimentRecipe | None = None,
) -> Table:
    """Lay entries out by dataset, or by levels of noise where there are some.

    With a recipe all its datasets are columns, also those of which there is no entry,
    and a letter stands where it says why.
    """
    beside = not brackets and any(entry.paper for entry in found.values())
    headings = _BESIDE if beside else ("",)
    titles: dict[NoiseSpec, str] = {level: level_in_words(level) for level in levels}
    if not levels:
        names = recipe.datasets if recipe else [cell.dataset for cell in found]
        titles = {name: dataset_title(name) for name in names}
    # Means of each column and section, as they are shown: equal ones are equally good.
    means: dict[tuple[str, NoiseSpec], list[str]] = {}
    for cell, entry in found.items():
        if entry.ours:
            place = (cell.row, cell.noise if levels else cell.dataset)
            means.setdefault(place, []).append(f"{entry.ours.mean:.1f}")
    rows = list(dict.fromkeys(cell.row for cell in found))
    lines: dict[tuple[str, ...], dict[NoiseSpec, list[Content]]] = {}
    for cell in sorted(found, key=lambda one: rows.index(one.row)):
        entry, column = found[cell], cell.noise if levels else cell.dataset
        rivals = means.get((cell.row, column), [])
        best = max(rivals, key=float) if len(rivals) > 1 else None
        ours = _ours(entry, seeds, best, brackets)
        paper = Value(*entry.paper) if entry.paper else Missing()
        line = lines.setdefault((cell.row, cell.method, cell.setting), {})
        line[column] = [paper, ours, _signed(entry.difference)] if beside else [ours]
    for (_, method, _), line in lines.items():
        for (absent, dataset), letter in _letters(recipe).items():
            if absent == method and dataset not in line:
                line[dataset] = [Missing(reason=letter)]
    groups = {column: ColumnGroup(word, headings) for column, word in titles.items()}
    labels = ("network", "method", "setting")
    return lay_out(_caption(title, found.values()), labels, groups, lines.items())


def _caption(title: str, found: Iterable[Entry]) -> str:
    """A title that says what is shown, where that is not accuracy."""
    metrics = {entry.cell.dataset: entry.metric for entry in found}
    if set(metrics.values()) == {"accuracy"}:
        return title
    return ": ".join(filter(None, (title, f"Test {_measured(metrics)}")))


def _ours(entry: Entry, seeds: int, best: str | None, brackets: bool) -> Content:
    paper = entry.paper[0] if entry.paper and brackets else None
    if entry.ours is None:
        return Missing(paper)
    ours = entry.ours
    return Value(
        ours.mean,
        ours.std,
        seeds=ours.count if ours.count != seeds else None,
        verdict=entry.comparison.verdict,
        best=f"{ours.mean:.1f}" == best,
        brackets=paper,
    )


def _signed(figure: float | None) -> Content:
    return Missing() if figure is None else Value(figure, signed=True)


def _gain_table(dataset: str, found: Iterable[Entry]) -> Table | None:
    """Relative gains of GSEBO over vanilla on a dataset, by false edges.

    The paper's stand beside them where it prints some; ``None`` where vanilla is not
    beside GSEBO.
    """
    gains: dict[tuple[str, str], dict[int, float]] = {}
    metric = "accuracy"
    for one in found:
        metric = one.metric
        cell, level, gain = one.cell, one.cell.noise, one.gain
        if cell.method == "gsebo" and gain is not None and isinstance(level, int):
            gains.setdefault((cell.row, cell.setting), {})[level] = gain
    if not gains:
        return None
    groups: dict[int, ColumnGroup] = {}
    lines: dict[tuple[str, ...], dict[int, list[Content]]] = {}
    for level in sorted({level for line in gains.values() for level in line}):
        printed = (dataset, level) == gain_place()
        groups[level] = ColumnGroup(str(level), _BESIDE if printed else ("",))
        for (network, setting), line in gains.items():
            paper = published_gain(network) if metric == "accuracy" else None
            ours = line.get(level)
            difference = None if paper is None or ours is None else ours - paper
            shown = (paper, ours, difference) if printed else (ours,)
            contents = [_signed(figure) for figure in shown]
            lines.setdefault((network, setting), {})[level] = contents
    measured = METRICS[metric].title
    title = f"Gain of GSEBO over vanilla, in percent of vanilla's {measured}"
    labels = ("network", "setting")
    return lay_out(title, labels, groups, lines.items(), dataset=dataset)


_STRENGTHS = "Strength relative to the start, in percent"


def strength_tables(evidence: Evidence) -> list[Table]:
    """Mean strengths of each network: by dataset, and by each kind of noise."""
    found = {cell: edge_groups(results) for cell, results in evidence.results.items()}
    known = {cell: groups for cell, groups in found.items() if groups}
    tables = []
    clean = {cell: groups for cell, groups in known.items() if not cell.noise}
    if clean:
        tables.append(_strength_table(_STRENGTHS, clean, ("within", "between")))
    for dataset in dict.fromkeys(cell.dataset for cell in known if cell.noise):
        noisy = [cell for cell in known if cell.dataset == dataset and cell.noise]
        for kind, levels in levels_by_kind(cell.noise for cell in noisy).items():
            part = {
                cell: known[cell]
                for level in levels
                for cell in noisy
                if cell.noise == level
            }
            title = f"{_STRENGTHS}: {dataset_title(dataset)}, by {measured_by(kind)}"
            shown = _strength_table(title, part, ("within", "between", "false"))
            tables.append(replace(shown, dataset=dataset, noise=kind))
    return tables


def _strength_table(
    title: str, found: dict[Cell, dict[str, PooledEdges]], names: tuple[str, ...]
) -> Table:
    groups: dict[str, ColumnGroup] = {}
    lines: dict[tuple[str, ...], dict[str, list[Content]]] = {}
    for cell, found_groups in found.items():
        noise, dataset = level_in_words(cell.noise), dataset_title(cell.dataset)
        column = noise if cell.noise else dataset
        groups[column] = ColumnGroup(column, names)
        ratios = (found_groups[n].ratio if n in found_groups else None for n in names)
        lines.setdefault((cell.row, cell.setting), {})[column] = [
            Value(100 * one.mean, 100 * one.std) if one else Missing() for one in ratios
        ]
    return lay_out(title, ("network", "setting"), groups, lines.items())


_PLACES = (0.03, 0.1, 0.3, 1.0)
_COLUMNS = {
    "train_loss": "loss",
    "train_accuracy": "train",
    "val_accuracy": "val",
    "test_accuracy": "test",
}


def curve_table(evidence: Evidence) -> Table | None:
    """Mean and spread over seeds at a few places; ``None`` where no curve is stored."""
    ends = [
        one.curves["inner_steps"][-1]
        for results in evidence.results.values()
        for one in results.values()
        if one.curves
    ]
    if not (longest := int(max(ends, default=0))):
        return None
    headings = tuple(_COLUMNS.values())
    # Of a short training two places may be the same step.
    steps = {place: round(longest * place) for place in _PLACES}
    lines = []
    for cell, results in evidence.results.items():
        line: dict[float, list[Content]] = {place: [] for place in steps}
        for curve in (mean_curve(results, name) for name in _COLUMNS):
            for place, step in steps.items():
                line[place].append(Missing())
                if curve is not None and step <= curve[0][-1]:
                    at = int((curve[0] >= step).argmax())
                    line[place][-1] = Value(100 * curve[1][at], 100 * curve[2][at])
        lines.append(((cell.row, cell.method, cell.dataset, cell.setting), line))
    return lay_out(
        "After so many steps of the weights: training loss times 100, and "
        "accuracies in percent",
        ("network", "method", "dataset", "setting"),
        {place: ColumnGroup(str(step), headings) for place, step in steps.items()},
        lines,
        optional="",
    )


def _notes(
    evidence: Evidence, found: Iterable[Entry], seeds: int, brackets: bool
) -> tuple[str, ...]:
    shown = list(found)
    metrics = {entry.cell.dataset: entry.metric for entry in shown}
    what = f"Test {_measured(metrics)}"
    if evidence.recipe.is_search:
        what = _capital(_measured(metrics, f" on {_SCORING_NODES}"))
    paper = "; the difference is ours less the paper's"
    if brackets:
        source = published_source(evidence.recipe.name)
        paper = f", in brackets the mean of {source}"
    if not any(entry.paper for entry in shown):
        paper = ""
    first = f"{what}: mean ± standard deviation over {seeds} seeds{paper}."
    return (first, *_lacking(evidence), *mark_notes(shown, evidence.recipe.control))


def _lacking(evidence: Evidence) -> Iterator[str]:
    """What was stored without the metric that is shown, in a sentence for each."""
    found: dict[str, list[str]] = {}
    for dataset, number in evidence.unscored().items():
        words = (
            f"{number} trial{'' if number == 1 else 's'} of {dataset_title(dataset)}"
        )
        found.setdefault(evidence.metric(dataset).title, []).append(words)
    for title, parts in found.items():
        yield f"-: stored without {title} were {', '.join(parts)}."


def _measured(metrics: Mapping[str, str], where: str = "") -> str:
    """What is shown, by the metrics of datasets.

    >>> _measured({"cora": "accuracy", "texas": "accuracy"})
    'accuracy in percent'
    >>> _measured({"cora": "accuracy", "texas": "f1_macro"}, " of test nodes")
    'accuracy of test nodes in percent, of Texas macro F1 in percent'
    """
    first, *others = dict.fromkeys(metrics.values())
    words = f"{METRICS[first].title}{where} {METRICS[first].unit}"
    for other in others:
        names = [dataset_title(name) for name in metrics if metrics[name] == other]
        metric = METRICS[other]
        words += f", of {', '.join(names)} {metric.title} {metric.unit}"
    return words


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _record(recipe: ExperimentRecipe, entry: Entry) -> dict[str, object]:
    cell, paper, ours = entry.cell, entry.paper, entry.ours
    tested = entry.comparison
    control = tested.control
    # Where nothing else is said all are accuracies.
    says = recipe.metrics or recipe.metric != "accuracy"
    return {
        "recipe": recipe.name,
        **({"metric": entry.metric} if says else {}),
        "method": cell.method,
        "row": cell.row,
        "network": "/".join(entry.networks) or None,
        "dataset": cell.dataset,
        "noise": cell.noise,
        "setting": cell.setting,
        "paper_mean": paper[0] if paper else None,
        "paper_std": paper[1] if paper else None,
        "mean": ours.mean if ours else None,
        "std": ours.std if ours else None,
        "seeds": ours.count if ours else 0,
        "difference": entry.difference,
        "control": control.method if control else None,
        "control_row": control.row if control else None,
        "control_setting": control.setting if control else None,
        "p": tested.p,
        "p_corrected": tested.corrected,
        "verdict": tested.verdict,
        "gain_percent": entry.gain,
        "val_accuracy": entry.val_accuracy,
        "best_step": entry.best_step,
        "seconds": entry.seconds,
        "peak_memory_bytes": entry.peak_memory_bytes,
    }


def choices_sheet(evidence: Evidence) -> Sheet:
    """Lay out what was taken for each cell of a recipe, and what came next.

    Args:
        evidence: What is stored for a recipe.
    """
    recipe = evidence.recipe
    rows_of = [row for block in recipe.blocks for row in block.backbones]
    chosen = sorted(_chosen(evidence), key=lambda one: rows_of.index(one[1].row))
    if not chosen:
        raise InvalidInput(
            f"choices of the recipe {recipe.name!r} asked for; it leaves none to a "
            "search."
        )
    metrics = {cell.dataset: recipe.metric_of(cell.dataset) for _, cell, _ in chosen}
    only = next(iter(metrics.values())) if len(set(metrics.values())) == 1 else None
    heading = METRICS[only].title if only else "score"
    groups = {
        rank: ColumnGroup(title, ("parameters", heading))
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
        notes=(
            f"{_capital(_measured(metrics))} on {_SCORING_NODES}: mean over the seeds "
            "of the search.",
            "Not listed: where there was one candidate only.",
        ),
        facts={"recipe": recipe.name, "missing": evidence.missing},
        kind="choices",
        records=tuple(
            _choice_record(recipe.name, only or "score", *one) for one in chosen
        ),
    )


def leaves_choices(evidence: Evidence) -> bool:
    """Whether a recipe leaves anything to a search that is listed with it."""
    return any(True for _ in _chosen(evidence))


def _chosen(
    evidence: Evidence,
) -> Iterator[tuple[TrialBlock, Cell, list[ScoredCandidate]]]:
    """Blocks, cells and their candidates, best first; none before the search is run."""
    listed: set[Cell] = set()
    blocks = evidence.recipe.blocks
    methods = {method for block in blocks for method in block.methods}
    for block in blocks:
        # What was chosen for another method here is listed with that method.
        if block.tuned_by is None or block.tuned_as in methods:
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


def _choice_record(
    recipe: str,
    metric: str,
    block: TrialBlock,
    cell: Cell,
    ranking: list[ScoredCandidate],
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
        names = ("network", "parameters", metric, "seeds")
        record |= {f"{name}_{k}": v for k, v in zip(names, values, strict=True)}
    return record
