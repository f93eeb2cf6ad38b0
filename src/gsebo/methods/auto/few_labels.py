"""An automatic fit where labels are few: those of validation nodes choose, no more.

Training labels are too few to hold some out, so candidates are compared on validation
nodes, which none of them learns from. The plain network is the floor: in turn, each
candidate takes the place of the one that holds it only where it is right on more of the
validation nodes, and that is sure: the difference, or that of the log-likelihood, is
more than a standard error, or two for whoever learns a graph, node by node.

Beside what learns from labels alone stand networks that nodes without labels teach too,
on the graph as it was given, without any, and on a learned one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from gsebo.data.preparation import Given, Preparation, fit_preparation
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph
from gsebo.methods.auto.search import candidate, candidate_names, train
from gsebo.methods.base import GraphClassifier
from gsebo.methods.controls import MLPControl, Vanilla
from gsebo.methods.fitting import Choice, Outcome, Tried
from gsebo.methods.folds import Lead, stratified_folds, taught_labels
from gsebo.methods.parameters import plain_parameters
from gsebo.methods.run import Run


class _Teaching(NamedTuple):
    """How nodes without labels teach."""

    words: str
    consistency: float
    temperature: float
    pace: float  # By how much steps are larger than those of other networks.

    def parameters(self) -> dict[str, Any]:
        """What networks of any kind take of it."""
        return {
            "consistency": self.consistency,
            "temperature": self.temperature,
            "warmup": 200,
            "num_views": 2,
        }


# Two ways, because none does best everywhere: larger steps drop more of the features.
# docs/guides/few_labels.md says on what they were chosen. Looks are every ten steps.
_TEACHINGS = (
    _Teaching("", consistency=2.0, temperature=0.4, pace=1),
    _Teaching(" in larger steps", consistency=1.0, temperature=0.5, pace=5),
)
_STEPS, _EVERY, _PATIENCE = 1500, 10, 40
# Of the steps above, where an automatic fit is as long as it is by default.
_FULL_LENGTH = 1000
# By how many standard errors a candidate has to be ahead, by whether it learns a graph:
# on the graph as it is a network can hardly do worse than by chance.
_ERRORS = {False: 1, True: 2}
# They stop by validation nodes as they are, and hold out no label.
_PLAIN = (Vanilla, MLPControl)
_RANDOM_PROPAGATION = {
    "backbone": "grand",
    "backbone_options": {"feature_gates": True},
}
_WITHOUT_EDGES = {"backbone": "mlp", "backbone_options": None}


@final
@dataclass(frozen=True)
class _Candidate:
    method: str  # Name in the registry.
    words: str
    # One for each way of teaching, or a single one.
    estimators: tuple[GraphClassifier, ...]

    @property
    def divides(self) -> bool:
        """Whether it holds some of the training labels out."""
        return "labels" in self.estimators[0].get_params(deep=False)


class _Fitted(NamedTuple):
    candidate: _Candidate
    estimator: GraphClassifier
    words: str
    name: str  # Of what is done to the features.
    preparation: Preparation
    outcome: Outcome
    log_probability: Tensor  # Of the validation nodes.
    seconds: float


def choose_with_few_labels(
    parameters: dict[str, Any],
    data: Graph,
    run: Run,
    preparations: Sequence[str],
) -> Outcome:
    """Fit candidates on training labels, return the one that validation nodes take.

    Args:
        parameters: Those of the automatic fit.
        data: A validated graph without test labels.
        run: Its seed and device.
        preparations: Names of what may be done to the features, the plainest first.
    """
    race = _Race(parameters, data, run, preparations)
    wanted = _candidates(parameters)
    # Whoever learns a graph holds some training labels out.
    divisible = bool(stratified_folds(taught_labels(data, "train"), 2, run.seed))
    able = [one for one in wanted if divisible or not one.divides]
    if not able:
        raise InvalidInput(
            f"methods={parameters['methods']!r} given where no class has two training "
            "nodes; expected 'vanilla' or 'mlp' among them, or labels='all'."
        )
    fits = [race.fit(each) for each in able]
    held, before = 0, -1
    # Again until nobody takes the place, so that nobody is surely better in the end.
    while held != before:
        before = held
        for number, each in enumerate(fits):
            if number != held and race.is_surely_better(each, fits[held]):
                held = number
    winner = fits[held]
    tried = tuple(race.told(number, fits, held) for number in range(len(fits)))
    left_out = (one for one in wanted if one not in able)
    tried += tuple(_untried(one, preparations[0]) for one in left_out)
    model = winner.outcome.model
    if not isinstance(winner.preparation, Given):
        model = replace(model, preparation=winner.preparation)
    own = winner.estimator.get_params(deep=False)
    choice = Choice(tried, plain_parameters(own))
    return winner.outcome._replace(model=model, choice=choice)


def require_few_label_methods(text: str) -> None:
    """Raise for a candidate that would learn from validation labels."""
    from gsebo.methods.registry import METHODS

    for name in candidate_names(text):
        if METHODS[name].learns_from_val and "labels" not in METHODS[name].defaults:
            raise InvalidInput(
                f"methods={text!r} given with labels='train', but {name} learns from "
                "validation labels; expected methods that do not, such as "
                "'vanilla,mlp,gsebo,amortised'."
            )


def _untried(one: _Candidate, preparation: str) -> Tried:
    return Tried(
        candidate=one.method,
        preparation=preparation,
        epochs=None,
        fold_accuracy=(),
        accuracy=None,
        log_loss=None,
        seconds=0.0,
        chosen=False,
        reason="not tried: no class has two training nodes, one of which to hold out",
    )


def _candidates(parameters: dict[str, Any]) -> list[_Candidate]:
    """What is compared, the plain network first, by the names that are wanted."""
    share = min(1.0, parameters["max_epochs"] / _FULL_LENGTH)
    length = {
        "max_epochs": max(1, round(share * _STEPS)),
        "evaluate_every": _EVERY,
        "patience": _PATIENCE,
        "select_by": "accuracy",
    }
    wanted, found = candidate_names(parameters["methods"]), list[_Candidate]()
    rate = parameters["inner_lr"]

    def add(method: str, words: str, *changed: dict[str, Any]) -> None:
        estimators = tuple(_made(parameters, method, each) for each in changed)
        found.append(_Candidate(method, words, estimators))

    if "vanilla" in wanted:
        add("vanilla", "the plain network", length)
        spread = {**length, **_RANDOM_PROPAGATION}
        taught = (
            {**spread, **each.parameters(), "inner_lr": rate * each.pace}
            for each in _TEACHINGS
        )
        add("vanilla", "random propagation, taught by all nodes", *taught)
    if "mlp" in wanted:
        add("mlp", "no edges", length)
        changed = {**length, **_TEACHINGS[0].parameters(), **_WITHOUT_EDGES}
        add("vanilla", "no edges, taught by all nodes", changed)
    for method in wanted:
        if method in ("vanilla", "mlp"):
            continue
        # The given graph is among the candidates already.
        least: dict[str, Any] = {"labels": "train", "fallback": False}
        words = f"the graph that {method} learns"
        if method not in ("amortised", "inoculated"):
            add(method, words, least)
            continue
        # Weights are trained on the learned graph as on the given.
        refitted = {
            **least,
            **_RANDOM_PROPAGATION,
            "structure_backbone": "gcn",
            "refit_epochs": max(1, round(share * _STEPS)),
        }
        taught = (
            {**refitted, **each.parameters(), "refit_lr": rate * each.pace}
            for each in _TEACHINGS
        )
        add(method, words, *taught)
    return found


def _made(
    parameters: dict[str, Any], method: str, changed: dict[str, Any]
) -> GraphClassifier:
    estimator = candidate(parameters, method)
    own = estimator.get_params(deep=False)
    taken = {name: value for name, value in changed.items() if name in own}
    # What is done to the features is done before a candidate gets them.
    return type(estimator)(**{**own, **taken, "features": Given.name})


class _Race:
    """Fits and compares candidates on one graph."""

    def __init__(
        self,
        parameters: dict[str, Any],
        data: Graph,
        run: Run,
        preparations: Sequence[str],
    ) -> None:
        self._data, self._run, self._names = data, run, preparations
        self._val = data.val_mask.nonzero().squeeze(-1)
        self._labels = data.y[self._val].long().cpu()
        self._prepared: dict[str, tuple[Preparation, Graph]] = {}
        self._stage = 0
        # What plain networks do best with, with edges and without.
        self._chosen: dict[bool, str] = {}
        self._teaching: int | None = None

    def fit(self, one: _Candidate) -> _Fitted:
        """Fit a candidate, taught in the way that did best with the first of them.

        The loss of the validation nodes tells, because it counts all of them where
        the number of those that are right differs by two or three.
        """
        ways = range(len(one.estimators))
        if len(ways) == 1:
            return self._with_features(one, 0)
        if self._teaching is None:
            fits = [self._with_features(one, way) for way in ways]
            losses = [-_score(each, self._labels)[1] for each in fits]
            self._teaching = losses.index(min(losses))
            return fits[self._teaching]
        return self._with_features(one, self._teaching)

    def _with_features(self, one: _Candidate, way: int) -> _Fitted:
        """Fit a candidate with the features that the plain network does best with."""
        edges = one.estimators[way].backbone != "mlp"
        if edges in self._chosen:
            return self._fit(one, way, self._chosen[edges])
        best = self._fit(one, way, self._names[0])
        for name in self._names[1:]:
            other = self._fit(one, way, name)
            if _score(other, self._labels) > _score(best, self._labels):
                best = other
        self._chosen[edges] = best.name
        return best

    def _fit(self, one: _Candidate, way: int, name: str) -> _Fitted:
        if name not in self._prepared:
            fitted = fit_preparation(name, self._data)
            self._prepared[name] = fitted, fitted.apply(self._data)
        preparation, data = self._prepared[name]
        begun = time.perf_counter()
        estimator = one.estimators[way]
        outcome = train(estimator, data, self._run.stage(self._stage))
        self._stage += 1
        seconds = time.perf_counter() - begun
        said = outcome.probability.cpu()[self._val.cpu()]
        tiny = torch.finfo(said.dtype).tiny
        logs = said.clamp(min=tiny).log()
        words = one.words
        if len(one.estimators) > 1:
            words += _TEACHINGS[way].words
        return _Fitted(one, estimator, words, name, preparation, outcome, logs, seconds)

    def lead(self, one: _Fitted, other: _Fitted) -> Lead:
        """How one compares with another on the validation nodes."""
        return Lead.of(one.log_probability, other.log_probability, self._labels)

    def is_surely_better(self, one: _Fitted, other: _Fitted) -> bool:
        """Whether one is right on more of the validation nodes, and that is no chance.

        How likely each node's class is said to be tells more than whether it is the
        likeliest: of 500 nodes, a few dozen change sides at most.
        """
        errors = _ERRORS[one.candidate.divides]
        lead = self.lead(one, other)
        if lead.is_beyond(errors):
            return True
        said, others = one.log_probability, other.log_probability
        return lead.share > 0 and _is_likelier(said, others, self._labels, errors)

    def told(self, number: int, fits: Sequence[_Fitted], held: int) -> Tried:
        """What is said of a candidate."""
        one = fits[number]
        accuracy, negative_loss = _score(one, self._labels)
        estimator = one.estimator
        epochs = getattr(estimator, "max_epochs", None)
        return Tried(
            candidate=one.candidate.method,
            preparation=one.name,
            epochs=epochs if isinstance(estimator, _PLAIN) else None,
            fold_accuracy=(accuracy,),
            accuracy=accuracy,
            log_loss=-negative_loss,
            seconds=one.seconds,
            chosen=number == held,
            reason=self._reason(number, fits, held),
        )

    def _reason(self, number: int, fits: Sequence[_Fitted], held: int) -> str:
        one, count = fits[number], len(self._val)
        accuracy, _ = _score(one, self._labels)
        words = f"{one.words}, right on {accuracy:.1%} of {count} validation"
        words += " nodes, which teach nothing"
        if number != held:
            lead = self.lead(one, fits[held])
            where = f"{_points(lead.share)} behind the chosen one"
            if lead.share >= 0:
                where = f"{_points(lead.share)} ahead, which is not sure"
            return f"{words}; {where} (standard error {100 * lead.error:.1f})"
        labels = int(self._data.train_mask.sum())
        words += f"; {labels} labels teach"
        if held:
            lead = self.lead(one, fits[0])
            words += f"; {_points(lead.share)} before {fits[0].words}"
            words += f" (standard error {100 * lead.error:.1f})"
        return words


def _is_likelier(said: Tensor, other: Tensor, labels: Tensor, errors: int) -> bool:
    """Whether classes are likelier on average, by more than so many standard errors."""
    own = labels.unsqueeze(-1)
    gain = (said.double() - other.double()).gather(-1, own).squeeze(-1)
    error = float(gain.std()) / len(gain) ** 0.5 if len(gain) > 1 else float("inf")
    return float(gain.mean()) > errors * error


def _points(share: float) -> str:
    return f"{abs(100 * share):.1f} points"


def _score(one: _Fitted, labels: Tensor) -> tuple[float, float]:
    """Share of the validation nodes that are right, and mean log-likelihood."""
    logs = one.log_probability
    right = float((logs.argmax(-1) == labels).double().mean())
    return right, float(logs.double().gather(-1, labels.unsqueeze(-1)).mean())
