"""Held-out labels decide: features, training length and method of one fit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, final

import torch
from torch import Tensor

from gsebo.data import num_classes
from gsebo.data.preparation import Preparation, fit_preparation
from gsebo.errors import InputWarning, InvalidInput, without_warnings
from gsebo.files import Count, Form, NotNegative, check_tensors
from gsebo.graph.graph import Graph
from gsebo.methods.auto.ahead import Ahead, NoLongerWanted
from gsebo.methods.auto.elimination import (
    Configuration,
    Elimination,
    HeldOutCurve,
    HeldOutScore,
    Judge,
    eliminate,
    evaluated,
    told,
)
from gsebo.methods.base import GraphClassifier
from gsebo.methods.fitting import Outcome, PreparedGraph, keeps_one_core
from gsebo.methods.folds import Fold
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier
from gsebo.metrics import require_fitting
from gsebo.names import own_name
from gsebo.sparse.numba_compile import thread_limit
from gsebo.training import Checkpoint, StepRecord
from gsebo.training.checkpoint import FORMAT, CheckpointFacts
from gsebo.training.inoculation import false_edges

PLAIN = ("vanilla", "mlp")
"""Networks without structure learning: the length of their training is chosen, and then
they are trained on all labels."""

# What a method may have by the same name is another thing there.
_OF_AUTO = ("methods", "features", "num_folds")
# Other loops count in other steps, and have a patience of their own.
_OF_EPOCHS = ("max_epochs", "evaluate_every", "patience", "select_by")
# So many epochs leave every method as long as it is by default.
_FULL_LENGTH = 1000
# Held-out nodes that are enough to choose features and a length by, and a method.
_ENOUGH_FOR_FEATURES = 1000
_ENOUGH_FOR_METHODS = 2500
# Whose trainings share nothing that changes, so that several may run at once; those
# that take the longest come first, because whoever begins last is waited for.
_LONGEST_FIRST = ("inoculated", "amortised", "gsebo", "vanilla", "mlp")
# What the names of tensors of a curve with false edges begin with.
_PLANTED = "planted_"


def candidate_names(text: str) -> list[str]:
    """Read ``"vanilla,mlp"``; the names have to be those of methods."""
    from gsebo.methods.registry import METHODS

    others = {name: info for name, info in METHODS.items() if name != "auto"}
    parts = text.split(",") if isinstance(text, str) else []
    names = [own_name("method", part, others) for part in parts if part.strip()]
    if not names or len(set(names)) < len(names):
        raise InvalidInput(
            f"methods={text!r} given; expected different names of methods with commas "
            "between them, such as 'vanilla,mlp'."
        )
    return names


def refits(method: str) -> bool:
    """Whether a method trains fresh weights on the structure that it has learned."""
    from gsebo.methods.registry import METHODS

    return "refit_epochs" in METHODS[method].estimator().get_params(deep=False)


def candidate(
    parameters: dict[str, Any], method: str, epochs: int | None = None
) -> GraphClassifier:
    """The estimator of a method, with the parameters of an automatic fit that it has.

    Where it is known for how many epochs the plain network is best trained, fresh
    weights are trained so long on a structure that was learned.
    """
    from gsebo.methods.registry import METHODS

    estimator = METHODS[method].estimator
    own = estimator().get_params(deep=False)
    epochwise = issubclass(estimator, EpochClassifier)
    others = _OF_AUTO if epochwise else _OF_AUTO + _OF_EPOCHS
    shared = [name for name in parameters if name in own and name not in others]
    given = {name: parameters[name] for name in shared}
    if method == "mlp":
        given |= {"backbone": "mlp", "backbone_options": None}
    if "max_outer_steps" in own:
        share = min(1.0, parameters["max_epochs"] / _FULL_LENGTH)
        given["max_outer_steps"] = max(1, round(share * own["max_outer_steps"]))
    if epochs is not None and refits(method):
        given["refit_epochs"] = epochs
    return estimator(**given)


def train(estimator: GraphClassifier, data: Graph, run: Run) -> Outcome:
    """Train an estimator within another one's fit, on a graph that was validated."""
    (outcome,) = estimator._train(data, [run])
    return outcome


@final
@dataclass(frozen=True, eq=False)
class Planting:
    """False edges at nodes whose labels are held out.

    Where edges far from labels look false more often than those near them, held-out
    labels say little of nodes far away: unless they are made to look alike.

    Attributes:
        excess: Share of edges far from labels that look false beyond others.
        error: Its standard error.
        classes: Class of each node, known or predicted, ``[nodes]``.
        dose: False edges for each edge of a node.
        seed: Decides which.
    """

    excess: float
    error: float
    classes: Tensor
    dose: float
    seed: int

    def graph(self, data: Graph, fold: Fold, number: int) -> Graph:
        """The graph of a fold with false edges at its held-out nodes."""
        rng = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**63)
        edges = data.edge_index.cpu()
        degree = edges[1].bincount(minlength=len(self.classes))
        nodes = fold.held_out.cpu()
        drawn = false_edges(nodes, self.classes, degree, self.dose, rng)
        both = torch.cat([edges, drawn, drawn.flip(0)], dim=1)
        return PreparedGraph(data, torch.device("cpu")).with_edges(both).data


class _CurveFacts(CheckpointFacts, frozen=True, kw_only=True):
    # Of evaluations.
    num_looks: Count
    seconds: NotNegative


_Trial = tuple[Configuration, int]
"""What is tried, and the number of the fold that it is tried on."""


@final
class Search:
    """All that is tried for one seed, on a validated graph without test labels.

    Trials run side by side on all cores where one alone would have one core for itself.
    Whoever is done closes it.
    """

    def __init__(
        self,
        parameters: dict[str, Any],
        data: Graph,
        folds: Sequence[Fold],
        run: Run,
        *,
        by_loss: bool,
        metric: str | None = None,
    ) -> None:
        self._parameters = parameters
        self._data = data
        self._folds = folds
        self._run = run
        self._by_loss = by_loss
        self._judge = None if metric is None else _judge(metric, data, folds)
        self._planting: Planting | None = None
        self._prepared: dict[str, tuple[Preparation, Graph]] = {}
        # Asked now: who runs trials side by side gives one to each.
        self._cores = thread_limit() if run.device.type == "cpu" else 1
        self._one_core: dict[str, bool] = {}
        self._trials = Ahead[_Trial, HeldOutCurve](self._found)
        self._telling = Lock()
        self._fingerprint = run.fingerprint()
        if run.checkpoint is not None:
            # What belongs to another run is refused before any training.
            run.checkpoint.prepare()
            owner = run.checkpoint.stage("search")
            if owner.read(self._fingerprint, CheckpointFacts) is None:
                # What an earlier fit left would otherwise be found later.
                run.checkpoint.remove()
                facts = CheckpointFacts(format=FORMAT, fingerprint=self._fingerprint)
                owner.write({}, facts)

    def close(self) -> None:
        """Leave nothing running."""
        self._trials.close()

    def prepared(self, name: str) -> tuple[Preparation, Graph]:
        """A preparation, fitted, and the graph with its features."""
        if name not in self._prepared:
            fitted = fit_preparation(name, self._data)
            self._prepared[name] = fitted, fitted.apply(self._data)
        return self._prepared[name]

    def plant(self, planting: Planting) -> None:
        """Try all on held-out nodes that have got false edges, too."""
        self._planting = planting

    def choose_features(self, method: str, names: Sequence[str]) -> tuple[str, int]:
        """The features that a plain network does best with, and its best evaluation."""
        tried = [Configuration(method, name) for name in names]
        ended = self.compare(tried, _ENOUGH_FOR_FEATURES)
        return ended.winner.preparation, ended.scores[ended.winner].best

    def expect_features(self, methods: Sequence[str], names: Sequence[str]) -> None:
        """Begin what will be asked for when features are chosen for plain networks."""
        tried = [Configuration(method, name) for method in methods for name in names]
        self._expect(tried, _ENOUGH_FOR_FEATURES)

    def compare(
        self, tried: Sequence[Configuration], enough: int = _ENOUGH_FOR_METHODS
    ) -> Elimination:
        """Find the best of some, on as many held-out nodes as are enough."""
        return self._eliminate(tried, self._curve, enough)

    def compare_planted(self, tried: Sequence[Configuration]) -> Elimination:
        """The same on held-out nodes that have got false edges."""

        def curve(one: Configuration, number: int) -> HeldOutCurve:
            found = self._curve(one, number).planted
            assert found is not None
            return found

        return self._eliminate(tried, curve, _ENOUGH_FOR_METHODS)

    def _eliminate(
        self,
        tried: Sequence[Configuration],
        curve: Callable[[Configuration, int], HeldOutCurve],
        enough: int,
    ) -> Elimination:
        self._expect(tried, enough)
        ended = eliminate(
            tried,
            self._folds,
            curve,
            enough,
            self._by_loss,
            self._judge,
            given_up=self._forget,
        )
        # Who has won alone, or by enough nodes, is tried no further.
        self._forget(tried)
        return ended

    def _expect(self, tried: Sequence[Configuration], enough: int) -> None:
        """Begin what will be asked for, unless somebody is given up on the way."""
        workers = self._workers(tried)
        if workers == 1:
            return
        numbers = []
        seen = 0
        for number, fold in enumerate(self._folds):
            if seen < enough:
                numbers.append(number)
                seen += len(fold.held_out)
        first = sorted(tried, key=lambda one: _LONGEST_FIRST.index(one.method))
        self._trials.expect(((one, at) for one in first for at in numbers), workers)

    def _forget(self, tried: Sequence[Configuration]) -> None:
        numbers = range(len(self._folds))
        self._trials.forget((one, number) for one in tried for number in numbers)

    def _workers(self, tried: Sequence[Configuration]) -> int:
        """How many trials may run at once: more than one where each has one core."""
        others = {one.method for one in tried}.difference(_LONGEST_FIRST)
        if others or self._cores == 1:
            return 1
        each = [self._has_one_core(name) for name in {one.preparation for one in tried}]
        return self._cores if all(each) else 1

    def _has_one_core(self, preparation: str) -> bool:
        """Whether a network on such features trains on one core, whoever else does."""
        if preparation not in self._one_core:
            # What threads read is there before they do.
            _, data = self.prepared(preparation)
            network = candidate(self._parameters, "vanilla").network()
            prepared = PreparedGraph(data, self._run.device)
            self._one_core[preparation] = keeps_one_core(prepared, network)
        return self._one_core[preparation]

    def best_evaluation(self, plain: Configuration) -> int:
        """That of a plain network on all folds, however many it was tried on."""
        curves: list[HeldOutCurve] = []
        seen = 0
        for number, fold in enumerate(self._folds):
            if seen < _ENOUGH_FOR_FEATURES:
                curves.append(self._curve(plain, number))
                seen += len(fold.held_out)
        score = HeldOutScore.of(curves, by_loss=self._by_loss, judge=self._judge)
        return score.best

    def can_try(self, method: str) -> bool:
        """Whether there are labels left to validate on, for those that need it."""
        return method in PLAIN or all(len(fold.val) for fold in self._folds)

    def _curve(self, tried: Configuration, number: int) -> HeldOutCurve:
        return self._trials.result((tried, number))

    def _found(self, trial: _Trial, unwanted: Callable[[], bool]) -> HeldOutCurve:
        tried, number = trial
        fold, checkpoint = self._folds[number], self._run.checkpoint
        name = f"{tried.method}-{tried.preparation}-{number}"
        place = checkpoint and checkpoint.stage(name)
        found = self._load(place, len(fold.held_out)) if place else None
        if found is None:
            found = self._train(tried, fold, number, unwanted)
            if place:
                self._save(place, found)
        return found

    def _save(self, place: Checkpoint, curve: HeldOutCurve) -> None:
        facts = _CurveFacts(
            format=FORMAT,
            fingerprint=self._fingerprint,
            num_looks=len(curve.right),
            seconds=curve.seconds,
        )
        curves = {"": curve, _PLANTED: curve.planted}
        tensors: dict[str, Tensor] = {}
        for prefix, one in curves.items():
            if one is not None:
                tensors |= {f"{prefix}right": one.right, f"{prefix}loss": one.loss}
                if one.told is not None:
                    tensors[f"{prefix}told"] = one.told
        place.write(tensors, facts)

    def _load(self, place: Checkpoint, num_nodes: int) -> HeldOutCurve | None:
        found = place.read(self._fingerprint, _CurveFacts)
        if found is None:
            return None
        tensors, facts = found
        looks = {"": facts.num_looks}
        if self._planting is not None:
            looks[_PLANTED] = 1
        forms: dict[str, Form] = {}
        for prefix, count in looks.items():
            forms[f"{prefix}right"] = Form(torch.bool, (count, num_nodes))
            forms[f"{prefix}loss"] = Form(torch.float32, (count, num_nodes))
            if self._judge is not None:
                forms[f"{prefix}told"] = Form(torch.float64, (count, num_nodes))
        check_tensors(tensors, forms, f"{place.path}")

        def curve(prefix: str, planted: HeldOutCurve | None = None) -> HeldOutCurve:
            right, loss = tensors[f"{prefix}right"], tensors[f"{prefix}loss"]
            known = tensors.get(f"{prefix}told")
            return HeldOutCurve(right, loss, facts.seconds, planted, known)

        return curve("", None if self._planting is None else curve(_PLANTED))

    def _train(
        self,
        tried: Configuration,
        fold: Fold,
        number: int,
        unwanted: Callable[[], bool],
    ) -> HeldOutCurve:
        begun = time.perf_counter()
        estimator = candidate(self._parameters, tried.method, tried.epochs)
        _, data = self.prepared(tried.preparation)
        nodes = fold.held_out.to(self._run.device)
        labels = self._data.y.to(self._run.device, torch.int64)[nodes]
        evaluations = []

        def look(log_probability: Tensor) -> tuple[Tensor, ...]:
            found = evaluated(log_probability, labels)
            return found if self._judge is None else (*found, told(log_probability))

        def tell(record: StepRecord, logits: Tensor) -> bool | None:
            if unwanted():
                raise NoLongerWanted
            if self._run.watcher is None:
                return None
            with self._telling:
                return self._run.watcher(record, logits)

        def watch(record: StepRecord, logits: Tensor) -> bool | None:
            evaluations.append(look(logits[nodes].log_softmax(-1)))
            return tell(record, logits)

        if tried.method in PLAIN:
            shown = fold.for_length(data)
            outcome = train(estimator, shown, self._run.watched_by(watch))
        else:
            shown, alone = fold.for_method(data), self._run.watched_by(tell)
            outcome = train(estimator, shown, alone)
            evaluations = [look(outcome.probability[nodes].log())]
        planted = None
        if self._planting is not None:
            # That false edges are new to a fit is what they are planted for.
            with without_warnings(InputWarning):
                graph = self._planting.graph(shown, fold, number)
                found = outcome.model.probabilities(graph)[nodes]
            planted = _curve_of([look(found.log())], time.perf_counter() - begun)
        return _curve_of(evaluations, time.perf_counter() - begun, planted)


def _curve_of(
    evaluations: Sequence[tuple[Tensor, ...]],
    seconds: float,
    planted: HeldOutCurve | None = None,
) -> HeldOutCurve:
    right, loss, *known = map(torch.stack, zip(*evaluations, strict=True))
    return HeldOutCurve(right, loss, seconds, planted, *known)


def _judge(metric: str, data: Graph, folds: Sequence[Fold]) -> Judge:
    """Who decides by a metric, which has to fit the held-out nodes of every fold."""
    labels = tuple(data.y.cpu()[fold.held_out.cpu()].long() for fold in folds)
    classes = num_classes(data)
    for one in labels:
        require_fitting(metric, one.numpy(), classes)
    return Judge(metric, classes, labels)
