"""The stored results behind a table or figure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, stdev
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.data.noise.registry import INTER_CLASS
from gsebo.experiments import (
    Cell,
    ExperimentRecipe,
    KnownResults,
    RecipePlan,
    Result,
    Tuning,
    make_plan,
)
from gsebo.experiments.plan import places
from gsebo.experiments.result import GroupName
from gsebo.metrics import METRICS, Metric

Levels = Mapping[str, tuple[NoiseSpec, ...]]
Numbers = NDArray[np.float64]


def levels_by_kind(noise: Iterable[NoiseSpec]) -> Levels:
    """Sort noise by its kind and level; the graph without any is level 0 of all kinds.

    >>> levels_by_kind([0, "removed:50", "removed:9", "labels:10"])
    {'removed': (0, 'removed:9', 'removed:50'), 'labels': (0, 'labels:10')}
    >>> levels_by_kind([1000, 0]), levels_by_kind([0])
    ({'inter_class': (0, 1000)}, {'inter_class': (0,)})
    """
    ascending = sorted(set(noise), key=lambda one: noise_parts(one)[1])
    kinds = {noise_parts(one)[0] for one in ascending if one} or {INTER_CLASS}
    return {
        kind: tuple(one for one in ascending if not one or noise_parts(one)[0] == kind)
        for kind in NOISE_KINDS
        if kind in kinds
    }


def measured_by(kind: str) -> str:
    """Say what the levels of a kind of noise are.

    >>> measured_by("inter_class"), measured_by("removed")
    ('the number of false edges', 'the share of edges removed')
    """
    measure = "share" if NOISE_KINDS[kind].in_percent else "number"
    return f"the {measure} of {NOISE_KINDS[kind].words}"


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (ddof = 1, 0 for one) and count of some scores.

    Attributes:
        mean: Of the scores.
        std: Their standard deviation.
        count: How many there are.
    """

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Mapping[int, float]) -> "Summary | None":
        """Of scores by seed, or ``None`` of none."""
        if not values:
            return None
        numbers = list(values.values())
        spread = stdev(numbers) if len(numbers) > 1 else 0.0
        return cls(mean(numbers), spread, len(numbers))


@dataclass(frozen=True)
class PooledEdges:
    """A group of edges over all layers, summed up over seeds."""

    # Percent of the edges in each bar, and of those that have no strength left.
    share: Numbers
    zero: float
    # Strength relative to the start.
    ratio: Summary


def edge_groups(results: Mapping[int, Result]) -> dict[str, PooledEdges]:
    """Pool what is stored of a cell, by the name of the group."""
    found: dict[str, PooledEdges] = {}
    names: tuple[GroupName, ...] = ("within", "between", "false")
    for name in names:
        shares, zeros = [], []
        ratios: dict[int, float] = {}
        for seed, result in results.items():
            groups = (layer[name] for layer in result.edges or () if name in layer)
            # Without any edge that had a strength at the start there is no mean.
            layers = [group for group in groups if group["mean"] is not None]
            if not layers:
                continue
            bars = np.array([layer["histogram"] for layer in layers], dtype=np.float64)
            shares.append(100 * bars.sum(axis=0) / bars.sum())
            gone = [100 * layer["zero"] / layer["count"] for layer in layers]
            zeros.append(float(np.mean(gone)))
            ratios[seed] = float(np.mean([layer["mean"] for layer in layers]))
        if ratio := Summary.of(ratios):
            share = np.mean(shares, axis=0)
            found[name] = PooledEdges(share, float(np.mean(zeros)), ratio)
    return found


def mean_curve(
    results: Mapping[int, Result], name: str
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Steps of the weights, and mean and standard deviation of a figure over seeds.

    As far as the shortest of the curves goes; ``None`` where there are none.
    """
    curves = [one.curves for one in results.values() if one.curves]
    if not curves:
        return None
    length = min(len(curve["inner_steps"]) for curve in curves)
    steps = np.array(curves[0]["inner_steps"][:length], dtype=np.float64)
    columns = (cast(Mapping[str, list[float]], curve)[name] for curve in curves)
    values = np.array([column[:length] for column in columns])
    spread = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(length)
    return steps, values.mean(axis=0), spread


@dataclass(frozen=True)
class Outline:
    """The names in a recipe, each once, in its order, and ascending levels of noise."""

    methods: tuple[str, ...]
    rows: tuple[str, ...]
    datasets: tuple[str, ...]
    noise: Levels

    @property
    def false_edges(self) -> tuple[int, ...]:
        """Numbers of false edges between classes, ascending; other noise left out."""
        levels = self.noise.get(INTER_CLASS, (0,))
        return tuple(level for level in levels if isinstance(level, int))


def outline(recipe: ExperimentRecipe) -> Outline:
    """List all names of a recipe."""
    found = [place for block in recipe.blocks for place in places(block)]
    return Outline(
        methods=tuple(dict.fromkeys(method for method, _, _ in found)),
        rows=tuple(dict.fromkeys(row for _, row, _ in found)),
        datasets=tuple(dict.fromkeys(dataset for _, _, dataset in found)),
        noise=levels_by_kind(one for block in recipe.blocks for one in block.noise),
    )


@dataclass(frozen=True)
class Evidence:
    """What is stored for a recipe, and what was chosen for it on validation.

    Attributes:
        recipe: What was asked for.
        plan: Its trials.
        results: Finished trials by their seeds; a cell may have none.
        failed: Trials that came to no end.
        missing: Number of trials that are not stored, searches included.
    """

    recipe: ExperimentRecipe
    plan: RecipePlan
    results: dict[Cell, dict[int, Result]]
    failed: tuple[Result, ...]
    missing: int

    def metric(self, dataset: str) -> Metric:
        """What the trials of a dataset are scored by."""
        return METRICS[self.recipe.metric_of(dataset)]

    def scores(self, cell: Cell) -> dict[int, float]:
        """Test accuracy, or another metric, times 100, by the seeds that have it."""
        metric = self.recipe.metric_of(cell.dataset)
        found = {
            seed: result.score(metric)
            for seed, result in self.results.get(cell, {}).items()
        }
        return {seed: 100 * one for seed, one in found.items() if one is not None}

    def summary(self, cell: Cell) -> Summary | None:
        """Of these scores."""
        return Summary.of(self.scores(cell))

    def unscored(self) -> dict[str, int]:
        """How many finished trials of each dataset were stored without its metric."""
        found: dict[str, int] = {}
        for cell, results in self.results.items():
            if lacking := len(results) - len(self.scores(cell)):
                found[cell.dataset] = found.get(cell.dataset, 0) + lacking
        return found

    def measured(self, form: str = "{0.title}") -> str:
        """What datasets are scored by, each metric once, as a form writes it."""
        written = (form.format(self.metric(name)) for name in self.recipe.datasets)
        return " or ".join(dict.fromkeys(written))


def gather_evidence(
    recipe: ExperimentRecipe, store: KnownResults, *, seeds: int | None = None
) -> Evidence:
    """Collect what is stored for a recipe, with its own number of seeds or another.

    Args:
        recipe: What was asked for.
        store: Where results are.
        seeds: Instead of the recipe's own number.
    """
    stored = store.results()
    plan = make_plan(recipe, Tuning(stored), seeds=seeds)
    results: dict[Cell, dict[int, Result]] = {}
    failed: dict[str, Result] = {}
    missing = {planned.trial.key for planned in plan.first}
    for planned in plan.trials:
        found = results.setdefault(planned.cell, {})
        result = stored.get(planned.trial.key)
        if result is None:
            missing.add(planned.trial.key)
        elif result.ok:
            found[planned.trial.seed] = result
        else:
            failed[result.key] = result
    return Evidence(recipe, plan, results, tuple(failed.values()), len(missing))


def gaps(evidence: Evidence, name: str | None = None) -> list[str]:
    """Say how many trials are not stored and failed; of a named recipe what to do.

    Args:
        evidence: What is stored for a recipe.
        name: What the recipe is called on the command line.
    """
    sentences = []
    if evidence.missing:
        command = f": `gsebo run {name}` runs them" if name else ""
        sentences.append(f"{_missing(evidence)}{command}.")
    if evidence.failed:
        number, first = len(evidence.failed), evidence.failed[0]
        reason = f", the first is {first.trial}: {first.error}" if name else ""
        sentences.append(f"{number} trial{'s' if number > 1 else ''} failed{reason}.")
    sentences += [f"Nothing can be run: {text}" for text in evidence.plan.hopeless]
    return sentences


def _missing(evidence: Evidence) -> str:
    if searched := len({planned.trial.key for planned in evidence.plan.first}):
        search = "of a search that decides what else is run"
        if searched == evidence.missing:
            return f"{searched} trials {search} are not stored"
        return f"{evidence.missing} trials are not stored, {searched} of them {search}"
    total = len({planned.trial.key for planned in evidence.plan.trials})
    return f"{evidence.missing} of {total} trials are not stored"
