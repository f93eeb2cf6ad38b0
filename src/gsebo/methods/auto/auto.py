"""The method, the features and the training length that suit a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, final

from gsebo.data.preparation import PREPARATIONS, Given, suitable_preparations
from gsebo.graph.graph import Graph
from gsebo.lookup import own_name
from gsebo.methods.auto.candidates import (
    PLAIN,
    Candidates,
    candidate_names,
    refits,
    train,
)
from gsebo.methods.auto.race import Entrant, Race
from gsebo.methods.auto.search import Search
from gsebo.methods.base import Run
from gsebo.methods.label_parts import deal
from gsebo.methods.outcome import Choice, Outcome, Tried
from gsebo.methods.parameters import NumFolds, Steps, Width, plain_parameters
from gsebo.methods.schedule import EpochClassifier
from gsebo.schema import Count
from gsebo.training.history import SelectBy
from gsebo.training.outer_step import OuterStepName


def tried_in_words(
    entrants: Sequence[Entrant],
    race: Race,
    epochs: Mapping[Entrant, int | None],
) -> list[Tried]:
    """Describe how each entrant did.

    Args:
        entrants: All that took part, in the order in which they are told.
        race: How it ended.
        epochs: Number of epochs chosen for each.
    """
    tried = []
    for entrant in entrants:
        standing = race.standings[entrant]
        tried.append(
            Tried(
                candidate=entrant.method,
                preparation=entrant.preparation,
                epochs=epochs[entrant],
                fold_accuracy=standing.fold_accuracy,
                accuracy=standing.accuracy,
                log_loss=standing.loss,
                seconds=standing.seconds,
                chosen=entrant == race.winner,
                reason=_reason(entrant, race),
            )
        )
    return tried


def untried(entrant: Entrant) -> Tried:
    """Describe a candidate for which there were too few labels."""
    return Tried(
        candidate=entrant.method,
        preparation=entrant.preparation,
        epochs=None,
        fold_accuracy=(),
        accuracy=None,
        log_loss=None,
        seconds=0.0,
        chosen=False,
        reason="not tried: too few labels to hold some out for it",
    )


def _reason(entrant: Entrant, race: Race) -> str:
    standing, winner = race.standings[entrant], race.standings[race.winner]
    if entrant == race.winner:
        return _why_first(race)
    count = len(standing.fold_accuracy)
    # Fold by fold, because who was given up has not been tried on all of them.
    ours, theirs = standing.fold_accuracy, winner.fold_accuracy[:count]
    behind = 100 * (_mean(theirs) - _mean(ours))
    words = f"{behind:.1f} points behind {race.winner.method}"
    if entrant not in race.finished:
        folds = "fold" if count == 1 else "folds"
        return f"given up after {count} {folds}, {words}"
    if standing.accuracy == winner.accuracy:
        return f"as accurate as {race.winner.method}, with a larger loss"
    return words


def _why_first(race: Race) -> str:
    best = race.standings[race.winner]
    words = f"it is right on {best.accuracy:.1%} of {len(best.right)} held-out nodes"
    if len(race.finished) > 1:
        second = race.finished[1]
        lead, error = best.lead_over(race.standings[second])
        words += (
            f", {100 * lead:.1f} points more than {second.method} "
            f"(standard error {100 * error:.1f})"
        )
    elif len(race.standings) > 1:
        words += ", far more than all others"
    return words


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Of a plain network where no label could be held out.
_EPOCHS_WITHOUT_EVIDENCE = 200


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Auto(EpochClassifier):
    """Chooses by labels that are held out, then trains with all of them.

    The labelled nodes are dealt into folds. A preparation of the features and a number
    of epochs are chosen for the plain network and for an MLP; then the candidates race.
    No test label is read, and nothing is tuned to a dataset by hand.

    Args:
        methods: Names of the candidates, with commas between them.
        features: What is done to the features: ``"auto"`` or ``"given"``, ``"rows"``,
            ``"standard"``; ``"degree"``, ``"identity"``, ``"degree+identity"`` read the
            edges alone.
        num_folds: Into how many parts the labels are dealt.
        outer_step: How strengths of single edges move, as in :class:`~gsebo.GSEBO`.

    Attributes:
        chosen_: Name of the chosen method.
        preparation_: Name of what is done to the features.
        epochs_: Chosen number of epochs, or ``None`` if the method stops by itself.
        chosen_parameters_: Parameters of the chosen method.
        choice_: A record of every candidate: accuracy on held-out nodes, and why it was
            chosen or not.
    """

    needs_features: ClassVar[bool] = False
    chooses: ClassVar[bool] = True

    hidden_channels: Width = 64
    max_epochs: Steps = 1000
    evaluate_every: Steps = 10
    patience: Count = 15
    select_by: SelectBy = "accuracy"
    methods: str = "vanilla,mlp,gsebo,amortised"
    features: str = "auto"
    num_folds: NumFolds = 3
    outer_step: OuterStepName = "trust"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        own_name("features", self.features, {"auto": None, **PREPARATIONS})
        for name in candidate_names(self.methods):
            self._candidates(self.device, 0).make(name).check_parameters()

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        return [self._train_one(data, run) for run in runs]

    def _train_one(self, data: Graph, run: Run) -> Outcome:
        candidates = self._candidates(str(run.device), run.seed)
        folds = deal(data, self.num_folds, run.seed)
        search = Search(candidates, data, folds, run, by_loss=self.select_by == "loss")
        tried = self._choose(data, search) if folds else self._without_evidence(data)
        chosen = next(each for each in tried if each.chosen)
        preparation, prepared = search.prepared(chosen.preparation)
        estimator = candidates.final(chosen.candidate, chosen.epochs)
        outcome = train(estimator, prepared, run.stage(0))
        parameters = plain_parameters(estimator.get_params(deep=False))
        model = outcome.model
        if not isinstance(preparation, Given):
            model = replace(model, preparation=preparation)
        choice = Choice(tuple(tried), parameters)
        return outcome._replace(model=model, choice=choice)

    def _choose(self, data: Graph, search: Search) -> list[Tried]:
        names = self._preparations(data)
        entrants = []
        for method in candidate_names(self.methods):
            # Whatever learns a structure has the network and the features of vanilla.
            plain = method if method in PLAIN else "vanilla"
            preparation, look = search.choose_features(plain, names)
            epochs = self._epochs_at(look) if refits(method) else None
            entrants.append(Entrant(method, preparation, epochs))
        able = [each for each in entrants if search.can_try(each.method)]
        if not able:
            return self._without_evidence(data)
        race = search.choose_method(able)
        length = {each: self._length(each, race, search) for each in able}
        tried = tried_in_words(able, race, length)
        return tried + [untried(each) for each in entrants if each not in able]

    def _without_evidence(self, data: Graph) -> list[Tried]:
        names, methods = self._preparations(data), candidate_names(self.methods)
        # A plain network needs no labels to validate on.
        methods.sort(key=lambda method: method not in PLAIN)
        entrants = [Entrant(method, names[0]) for method in methods]
        first = untried(entrants[0])
        epochs = min(_EPOCHS_WITHOUT_EVIDENCE, self.max_epochs)
        chosen = replace(
            first,
            chosen=True,
            epochs=epochs if first.candidate in PLAIN else None,
            reason="it is the first candidate, and no label could be held out",
        )
        return [chosen, *(untried(each) for each in entrants[1:])]

    def _length(self, entrant: Entrant, race: Race, search: Search) -> int | None:
        if entrant.method not in PLAIN:
            return entrant.epochs
        # A race may be won after one fold, but a length is better with more of them.
        if entrant == race.winner:
            return self._epochs_at(search.best_look(entrant))
        return self._epochs_at(race.standings[entrant].best_look)

    def _epochs_at(self, look: int) -> int:
        return min(look * self.evaluate_every, self.max_epochs)

    def _preparations(self, data: Graph) -> list[str]:
        if self.features != "auto":
            return [own_name("features", self.features, PREPARATIONS)]
        return suitable_preparations(data)

    def _candidates(self, device: str, seed: int) -> Candidates:
        own = {"device": device, "random_state": seed}
        return Candidates({**self.get_params(deep=False), **own})

    def _tell_choice(self, choice: Choice | None) -> None:
        super()._tell_choice(choice)
        assert choice is not None
        chosen = choice.chosen
        self.chosen_ = chosen.candidate
        self.preparation_ = chosen.preparation
        self.epochs_ = chosen.epochs
        self.chosen_parameters_: dict[str, Any] = choice.parameters
        self.choice_ = [
            {**asdict(each), "fold_accuracy": list(each.fold_accuracy)}
            for each in choice.tried
        ]
