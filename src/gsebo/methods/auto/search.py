"""Held-out labels decide: features, training length and method of one fit."""

import time
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from gsebo.data.preparation import Preparation, fit_preparation
from gsebo.files import Form, check_tensors
from gsebo.graph.graph import Graph
from gsebo.methods.auto.candidates import PLAIN, Candidates, train
from gsebo.methods.auto.race import Curve, Entrant, Race, Standing, look, run_race
from gsebo.methods.base import Run
from gsebo.methods.label_parts import Fold
from gsebo.schema import Count, NotNegative
from gsebo.training import StepRecord
from gsebo.training.checkpoint import FORMAT, CheckpointFacts

_OWNER = "search"


class _CurveFacts(CheckpointFacts, frozen=True, kw_only=True):
    """What a file says of its curve.

    Attributes:
        num_looks: How often held-out nodes were looked at.
        seconds: How long the training took.
    """

    num_looks: Count
    seconds: NotNegative


@final
class CurveFiles:
    """The curves of one run, where it has a checkpoint to keep them with.

    Args:
        run: The run. What belongs to another one is refused here, before any training.
    """

    def __init__(self, run: Run) -> None:
        self._checkpoint = run.checkpoint
        self._fingerprint = run.fingerprint()
        if self._checkpoint is not None:
            self._checkpoint.prepare()
            owner = self._checkpoint.stage(_OWNER)
            if owner.read(self._fingerprint, CheckpointFacts) is None:
                # What an earlier fit left would otherwise be found later.
                self._checkpoint.remove()
                facts = CheckpointFacts(format=FORMAT, fingerprint=self._fingerprint)
                owner.write({}, facts)

    def save(self, name: str, curve: Curve) -> None:
        """Write a curve, if there is a place for it."""
        if self._checkpoint is None:
            return
        facts = _CurveFacts(
            format=FORMAT,
            fingerprint=self._fingerprint,
            num_looks=len(curve.right),
            seconds=curve.seconds,
        )
        tensors = {"right": curve.right, "loss": curve.loss}
        self._checkpoint.stage(name).write(tensors, facts)

    def load(self, name: str, num_nodes: int) -> Curve | None:
        """Read a curve, if the run is resumed and came so far.

        Args:
            name: Of the curve.
            num_nodes: Number of held-out nodes.
        """
        if self._checkpoint is None:
            return None
        place = self._checkpoint.stage(name)
        found = place.read(self._fingerprint, _CurveFacts)
        if found is None:
            return None
        tensors, facts = found
        shape = facts.num_looks, num_nodes
        forms = {"right": Form(torch.bool, shape), "loss": Form(torch.float32, shape)}
        check_tensors(tensors, forms, f"{place.path}")
        return Curve(tensors["right"], tensors["loss"], facts.seconds)


# Held-out nodes that are enough to choose features and a length by, and a method.
_ENOUGH_FOR_FEATURES = 1000
_ENOUGH_FOR_METHODS = 2500


@final
class Search:
    """Everything that is tried for one seed.

    Args:
        candidates: Makes the estimators.
        data: A validated graph whose test labels are hidden.
        folds: Divisions of its labels.
        run: The fit that this is a part of.
        by_loss: Whether the length of a training is chosen by loss.
    """

    def __init__(
        self,
        candidates: Candidates,
        data: Graph,
        folds: Sequence[Fold],
        run: Run,
        *,
        by_loss: bool,
    ) -> None:
        self._candidates = candidates
        self._data = data
        self._folds = folds
        self._run = run
        self._by_loss = by_loss
        self._files = CurveFiles(run)
        self._prepared: dict[str, tuple[Preparation, Graph]] = {}
        self._curves: dict[tuple[Entrant, int], Curve] = {}

    def prepared(self, name: str) -> tuple[Preparation, Graph]:
        """A preparation, fitted, and the graph with its features."""
        if name not in self._prepared:
            fitted = fit_preparation(name, self._data)
            self._prepared[name] = fitted, fitted.apply(self._data)
        return self._prepared[name]

    def choose_features(self, method: str, names: Sequence[str]) -> tuple[str, int]:
        """Find what a plain network does best with; there has to be a fold.

        Returns:
            The preparation of the features, and the number of the best look.
        """
        entrants = [Entrant(method, name) for name in names]
        race = self._race(entrants, _ENOUGH_FOR_FEATURES)
        return race.winner.preparation, race.standings[race.winner].best_look

    def choose_method(self, entrants: Sequence[Entrant]) -> Race:
        """Let methods with their preparations race; there has to be a fold."""
        return self._race(entrants, _ENOUGH_FOR_METHODS)

    def best_look(self, entrant: Entrant) -> int:
        """The best look of a plain network on all folds, however its race went."""
        curves: list[Curve] = []
        seen = 0
        for number, fold in enumerate(self._folds):
            if seen < _ENOUGH_FOR_FEATURES:
                curves.append(self._curve(entrant, number))
                seen += len(fold.held_out)
        return Standing.of(curves, by_loss=self._by_loss).best_look

    def can_try(self, method: str) -> bool:
        """Whether there are labels left to validate on, for those that need it."""
        return method in PLAIN or all(len(fold.val) for fold in self._folds)

    def _race(self, entrants: Sequence[Entrant], enough: int) -> Race:
        return run_race(
            entrants, self._folds, self._curve, enough=enough, by_loss=self._by_loss
        )

    def _curve(self, entrant: Entrant, number: int) -> Curve:
        key = entrant, number
        if key not in self._curves:
            name = f"{entrant.method}-{entrant.preparation}-{number}"
            found = self._files.load(name, len(self._folds[number].held_out))
            if found is None:
                found = self._train(entrant, self._folds[number])
                self._files.save(name, found)
            self._curves[key] = found
        return self._curves[key]

    def _train(self, entrant: Entrant, fold: Fold) -> Curve:
        begun = time.perf_counter()
        estimator = self._candidates.make(entrant.method, entrant.epochs)
        _, data = self.prepared(entrant.preparation)
        nodes = fold.held_out.to(self._run.device)
        labels = self._data.y.to(self._run.device, torch.int64)[nodes]
        looks = []

        def watch(record: StepRecord, logits: Tensor) -> None:
            looks.append(look(logits[nodes].log_softmax(-1), labels))
            tell(record, logits)

        tell = self._run.watcher or _nobody
        if entrant.method in PLAIN:
            train(estimator, fold.for_length(data), self._run.watched_by(watch))
        else:
            alone = self._run.watched_by(tell)
            outcome = train(estimator, fold.for_method(data), alone)
            looks = [look(outcome.probability[nodes].log(), labels)]
        return Curve.of_looks(looks, time.perf_counter() - begun)


def _nobody(record: StepRecord, logits: Tensor) -> None:
    """Listens where nobody does."""
