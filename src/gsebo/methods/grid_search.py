"""Which parameters do best on labels that are held out; no test label is ever read."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import numpy as np
import torch
from msgspec import Meta

from gsebo.data import num_classes, validate
from gsebo.data.splits import refuse_unseen
from gsebo.data.validate import sized
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph, GraphLike, as_graph
from gsebo.methods.base import GraphClassifier
from gsebo.methods.folds import Fold, stratified_folds
from gsebo.methods.parameters import NumFolds, Samples, require_declared
from gsebo.metrics import MetricFunction, metric_function, require_fitting
from gsebo.training.progress_bar import Display, display

if TYPE_CHECKING:
    from pandas import DataFrame

Parameters = dict[str, Any]

# What the sampler of scikit-learn takes.
_Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_MOST = 100_000
# What a fit may raise that another set of parameters may not.
_FAILURES = (ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError)


@final
@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search has found.

    Attributes:
        best_params_: The parameters with the highest mean score; of equals the first.
        best_score_: Their mean score on held-out nodes.
        best_estimator_: An estimator with them, fitted to all training and validation
            labels; ``None`` if that was not asked for.
        results_: A pandas ``DataFrame`` with a row for each set of parameters: these,
            the score's ``mean`` and ``std`` over folds, ``rank`` from 1, the score of
            each fold (``fold_0`` and so on, means over seeds), ``seconds``, and
            ``error``, the sentence of one that failed.
    """

    best_params_: Parameters
    best_score_: float
    best_estimator_: GraphClassifier | None
    results_: DataFrame


def search(
    estimator: GraphClassifier,
    grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Iterable[Any]]],
    data: GraphLike,
    *,
    folds: int | Literal["val"] = 3,
    draws: int | None = None,
    seeds: int = 1,
    scoring: str | MetricFunction = "accuracy",
    random_state: int = 0,
    refit: bool = True,
    verbose: bool = False,
) -> SearchResult:
    """Try sets of parameters on held-out labels, and fit the best one to all labels.

    The training and validation nodes are dealt into folds, class by class. Each fold is
    held out once: a fit sees neither its labels nor any test label, validates on
    others, and is scored on the fold.

    Args:
        estimator: A method with the parameters that are not searched; it is not
            changed.
        grid: Lists of values by the names of parameters, whose combinations are all
            tried, or a list of such grids.
        data: A graph in memory with labels and masks.
        folds: Number of folds, or ``"val"``: train on the training nodes alone, and
            hold out one half of the validation nodes after the other.
        draws: Try so many combinations that are drawn at random, instead of all; values
            may be distributions with a method ``rvs`` then, such as scipy's.
        seeds: Number of fits on each fold, whose mean counts.
        scoring: ``"accuracy"``, ``"balanced_accuracy"``, ``"f1_macro"``, ``"roc_auc"``
            (of two classes), ``"neg_log_loss"``, or a function of labels ``[nodes]``
            and probabilities ``[nodes, classes]``, both numpy arrays; the highest is
            the best.
        random_state: Seed of folds, draws and fits: it decides the result.
        refit: Whether the best one is fitted to all labels in the end.
        verbose: Show a progress bar, or a line every few seconds.

    Raises:
        InvalidInput: Something given cannot be used, a combination among it, which is
            said before the first fit; or every combination failed.
    """
    if not isinstance(estimator, GraphClassifier):
        raise InvalidInput(
            f"an estimator that is a {type(estimator).__name__} given; expected one of "
            "gsebo's, such as gsebo.GSEBO()."
        )
    require_declared("random_state", random_state, _Seed)
    require_declared("seeds", seeds, Samples)
    score = metric_function(scoring)
    tried = _combinations(grid, draws, random_state)
    candidates = [_candidate(estimator, each, random_state) for each in tried]
    graph = _without_test_labels(data, estimator)
    parts = _folds(graph, folds, random_state)
    if isinstance(scoring, str):
        # What no fold could be scored by is said before the first fit.
        for part in parts:
            require_fitting(
                scoring, graph.y.cpu()[part.held_out].numpy(), num_classes(graph)
            )
    with ExitStack() as shown:
        bar = shown.enter_context(display()) if verbose else None
        rows = [
            _tried(candidate, graph, parts, seeds, score, _Bar(bar, number, tried))
            for number, candidate in enumerate(candidates)
        ]
    return _result(tried, candidates, rows, data if refit else None)


def _combinations(grid: Any, draws: int | None, seed: int) -> list[Parameters]:
    from sklearn.model_selection import ParameterGrid, ParameterSampler

    grids = [grid] if isinstance(grid, Mapping) else grid
    if not isinstance(grids, Sequence) or isinstance(grids, str) or not grids:
        raise InvalidInput(
            f"grid={grid!r:.80} given; expected lists of values by the names of "
            "parameters, or a list of such grids."
        )
    drawn = [_spelled_out(each, draws) for each in grids]
    if draws is None:
        found = list(islice(ParameterGrid(drawn), _MOST + 1))
    else:
        require_declared("draws", draws, Samples)
        if not any(hasattr(one, "rvs") for each in drawn for one in each.values()):
            # It warns of more draws than there are combinations.
            draws = min(draws, len(ParameterGrid(drawn)))
        found = list(ParameterSampler(drawn, draws, random_state=seed))
    if len(found) > _MOST:
        raise InvalidInput(
            f"a grid of more than {_MOST:,} combinations given; expected fewer, or "
            "draws=50 to try some of them."
        )
    return found


def _spelled_out(grid: Mapping[str, Any], draws: int | None) -> dict[str, Any]:
    """A grid with lists of values, and distributions where values are drawn."""
    spelled: dict[str, Any] = {}
    if not isinstance(grid, Mapping):
        raise InvalidInput(
            f"a grid that is {grid!r:.80} given; expected lists of values by the names "
            "of parameters."
        )
    for name, values in grid.items():
        if draws is not None and hasattr(values, "rvs"):
            spelled[name] = values
            continue
        plain = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
        if not plain or not (listed := list(values)):
            hint = ", or with draws=50" if hasattr(values, "rvs") else ""
            raise InvalidInput(
                f"{name}={values!r:.80} given in a grid; expected a list of values"
                f"{hint}."
            )
        spelled[name] = listed
    return spelled


def _candidate(
    estimator: GraphClassifier, chosen: Parameters, seed: int
) -> GraphClassifier:
    """An estimator with other parameters, all of which are known to be good."""
    parameters = copy.deepcopy(estimator.get_params(deep=False))
    for name in chosen:
        if name not in parameters:
            names = ", ".join(parameters)
            raise InvalidInput(
                f"a grid of {name!r:.80} given; {type(estimator).__name__} expected "
                f"some of {names}."
            )
    if parameters["random_state"] is None:
        parameters["random_state"] = seed
    found = type(estimator)(**parameters | copy.deepcopy(chosen))
    found.check_parameters()
    return found


def _without_test_labels(data: GraphLike, estimator: GraphClassifier) -> Graph:
    """The graph as a search may see it."""
    graph = as_graph(data)
    validate(graph, features_needed=estimator.reads_features())
    graph = copy.copy(sized(graph))
    refuse_unseen(graph)
    graph.y = torch.where(graph.train_mask | graph.val_mask, graph.y, -1).long()
    return graph


def _folds(data: Graph, folds: Any, seed: int) -> list[Fold]:
    if folds == "val":
        train, val = (
            mask.nonzero().squeeze(-1).cpu()
            for mask in (data.train_mask, data.val_mask)
        )
        order = torch.randperm(len(val), generator=torch.Generator().manual_seed(seed))
        halves = [half.sort().values for half in val[order].tensor_split(2)]
        found = [Fold(halves[0], train, halves[1]), Fold(halves[1], train, halves[0])]
    else:
        require_declared("folds", folds, NumFolds)
        found = stratified_folds(data, folds, seed)
    if not found or any(not len(part.val) or not len(part.held_out) for part in found):
        raise InvalidInput(
            f"folds={folds!r} given for a graph with so few labels that nothing is "
            "left to hold out or to validate on; expected more labels, or fewer folds."
        )
    return found


@final
@dataclass(frozen=True)
class _Bar:
    """Where a search stands: which of all combinations, on which fold."""

    shown: Display | None
    number: int
    tried: Sequence[Parameters]

    def report(self, fold: int, folds: int) -> None:
        if self.shown is not None:
            chosen = self.tried[self.number].items()
            said = ", ".join(f"{name}={value!r:.40}" for name, value in chosen)
            done, total = self.number * folds + fold, len(self.tried) * folds
            self.shown.report("search", done, total, said)


@dataclass(frozen=True)
class _Row:
    scores: list[float]  # One for each fold.
    seconds: float
    error: str | None = None


def _tried(
    candidate: GraphClassifier,
    data: Graph,
    folds: Sequence[Fold],
    seeds: int,
    score: MetricFunction,
    bar: _Bar,
) -> _Row:
    begun, scores = time.perf_counter(), list[float]()
    for number, fold in enumerate(folds):
        bar.report(number, len(folds))
        fresh = type(candidate)(**copy.deepcopy(candidate.get_params(deep=False)))
        try:
            fresh.fit(fold.for_method(data), replicas=seeds)
        except _FAILURES as error:
            words = " ".join(str(error).split()) or type(error).__name__
            seconds = time.perf_counter() - begun
            missing = [float("nan")] * (len(folds) - number)
            return _Row(scores + missing, seconds, words)
        labels = data.y.cpu()[fold.held_out].numpy()
        found = [
            score(labels, each.probability_[fold.held_out].numpy())
            for each in fresh.replicas_
        ]
        scores.append(float(np.mean(found)))
    bar.report(len(folds), len(folds))
    return _Row(scores, time.perf_counter() - begun)


def _result(
    tried: Sequence[Parameters],
    candidates: Sequence[GraphClassifier],
    rows: Sequence[_Row],
    data: GraphLike | None,
) -> SearchResult:
    from pandas import DataFrame, Series

    # What failed on one fold has no mean.
    scores = np.array([row.scores for row in rows], np.float64)
    mean = scores.mean(axis=1)
    failed = np.isnan(mean)
    if failed.all():
        raise InvalidInput(
            f"each of {len(rows)} combinations failed, the first with: {rows[0].error}"
        )
    names = list(dict.fromkeys(name for each in tried for name in each))
    columns: dict[str, Any] = {
        name: Series([each.get(name) for each in tried], dtype=object).infer_objects()
        for name in names
    }
    columns |= {"mean": mean, "std": scores.std(axis=1)}
    order = np.argsort(np.where(failed, np.inf, -mean), kind="stable")
    rank = np.empty(len(rows), int)
    rank[order] = np.arange(1, len(rows) + 1)
    columns["rank"] = rank
    columns |= {f"fold_{number}": each for number, each in enumerate(scores.T)}
    columns["seconds"] = [row.seconds for row in rows]
    columns["error"] = Series([row.error for row in rows], dtype=object)
    best = int(order[0])
    fitted = None if data is None else candidates[best].fit(data)
    return SearchResult(
        dict(tried[best]), float(mean[best]), fitted, DataFrame(columns)
    )
