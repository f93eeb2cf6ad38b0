"""The method, the features and the training length that suit a graph."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, final

from gsebo.data.preparation import (
    PREPARATIONS,
    WITHOUT_FEATURES,
    Given,
    suitable_preparations,
)
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph.graph import Graph
from gsebo.methods.amortised import Inoculated
from gsebo.methods.auto.elimination import Configuration, Elimination, HeldOutScore
from gsebo.methods.auto.few_labels import (
    choose_with_few_labels,
    require_few_label_methods,
)
from gsebo.methods.auto.search import (
    PLAIN,
    Planting,
    Search,
    candidate,
    candidate_names,
    refits,
    train,
)
from gsebo.methods.controls import TrainVal
from gsebo.methods.fitting import (
    Choice,
    Outcome,
    PreparedGraph,
    Tried,
    laid_out_once,
)
from gsebo.methods.folds import Labels, stratified_folds
from gsebo.methods.parameters import NumFolds, Steps, Width, plain_parameters
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier
from gsebo.metrics import METRICS
from gsebo.names import own_name
from gsebo.training.history import Patience, SelectBy
from gsebo.training.outer_step import OuterStepName


def _reason(one: Configuration, ended: Elimination, planting: Planting | None) -> str:
    score, best = ended.scores[one], ended.scores[ended.winner]
    if one == ended.winner:
        return _why_first(ended, planting)
    count = len(score.fold_score)
    # Fold by fold, because who was given up has not been tried on all of them.
    ahead = sum(best.fold_score[:count]) / count - sum(score.fold_score) / count
    words = f"{_amount(best, ahead)} behind {ended.winner.method}"
    if one not in ended.finished:
        folds = "fold" if count == 1 else "folds"
        return f"given up after {count} {folds}, {words}"
    if score.score == best.score:
        equal = "as accurate as" if score.judge is None else "as good as"
        return f"{equal} {ended.winner.method}, with a larger loss"
    return words


def _why_first(ended: Elimination, planting: Planting | None) -> str:
    best = ended.scores[ended.winner]
    words = f"it is right on {best.accuracy:.1%} of {len(best.right)} held-out nodes"
    if best.judge is not None:
        metric = METRICS[best.judge.metric]
        score = f"{metric.title} is {metric.written(best.score)}"
        words = f"its {score} on {len(best.right)} held-out nodes"
    if planting is not None:
        words += (
            f" with false edges planted at them, because {planting.excess:.0%} of the "
            f"edges far from labels look false (standard error {planting.error:.0%})"
        )
    if len(ended.finished) > 1:
        second = ended.finished[1]
        lead, error = best.lead_over(ended.scores[second])
        spread = f"{100 * error:.1f}" if _in_points(best) else f"{error:.3f}"
        words += (
            f", {_amount(best, lead)} more than {second.method} "
            f"(standard error {spread})"
        )
    elif len(ended.scores) > 1:
        words += ", far more than all others"
    return words


def _in_points(score: HeldOutScore) -> bool:
    return score.judge is None or METRICS[score.judge.metric].in_percent


def _amount(score: HeldOutScore, difference: float) -> str:
    """A difference of what decides, in words."""
    if _in_points(score):
        return f"{100 * difference:.1f} points"
    return f"{difference:.3f}"


def _by_metric(score: HeldOutScore) -> dict[str, Any]:
    """What is told of a candidate where another metric than accuracy decides."""
    if score.judge is None:
        return {}
    return {"fold_score": score.fold_score, "score": score.score}


def _untried(one: Configuration) -> Tried:
    return Tried(
        candidate=one.method,
        preparation=one.preparation,
        epochs=None,
        fold_accuracy=(),
        accuracy=None,
        log_loss=None,
        seconds=0.0,
        chosen=False,
        reason="not tried: too few labels to hold some out for it",
    )


# What takes the place of the other where edges far from labels look false.
_SCORED, _INOCULATED = "amortised", "inoculated"
# Of a plain network where no label could be held out.
_EPOCHS_WITHOUT_EVIDENCE = 200


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Auto(EpochClassifier):
    """Chooses by labels that are held out, then trains with all of them.

    The labelled nodes are dealt into folds. A preparation of the features and a number
    of epochs are chosen for the plain network and for an MLP; then the candidates are
    compared, and those that fall behind are given up.
    No test label is read, and nothing is tuned to a dataset by hand.

    Held-out labels say how a method does near labels. Where edges far from them look
    false more often, as after an attack on nodes without labels, ``inoculated`` stands
    in for ``amortised``, and candidates are compared with false edges planted at the
    held-out nodes.

    With ``labels="train"`` only training labels teach. Nothing is held out of them:
    validation nodes choose, and the plain network stays unless it is surely beaten.
    Candidates are then also networks that nodes without labels teach; how long they
    are trained, and how often they are looked at, is not for ``evaluate_every`` and
    ``patience`` to say.

    Args:
        methods: Names of the candidates, with commas between them.
        labels: Whose labels teach: ``"all"``, those of training and validation nodes,
            or ``"train"``, those of training nodes alone.
        features: What is done to the features: ``"auto"`` or ``"given"``, ``"rows"``,
            ``"standard"``; ``"degree"``, ``"identity"``, ``"degree+identity"`` read the
            edges alone.
        num_folds: Into how many parts the labels are dealt.
        select_by: What candidates are compared by on held-out nodes: ``"accuracy"``,
            ``"balanced_accuracy"``, ``"f1_macro"``, ``"roc_auc"`` (of two classes) or
            ``"neg_log_loss"``. With ``"loss"`` the length of a training is chosen by
            the loss, and a method by accuracy.
        outer_step: How strengths of single edges move, as in :class:`~gsebo.GSEBO`.

    Attributes:
        chosen_: Name of the chosen method.
        preparation_: Name of what is done to the features.
        epochs_: Chosen number of epochs, or ``None`` if the method stops by itself.
        chosen_parameters_: Parameters of the chosen method.
        choice_: A record of every candidate: accuracy on held-out nodes, and why it was
            chosen or not.
        shift_: Share of the edges far from labels that look false beyond those near
            them, for sure; 0 where nothing was noticed.
    """

    reads_types: ClassVar[bool] = True

    needs_features: ClassVar[bool] = False
    uses_edge_attr: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    hidden_channels: Width = 64
    max_epochs: Steps = 1000
    evaluate_every: Steps = 10
    patience: Count = 15
    select_by: SelectBy = "accuracy"
    methods: str = "vanilla,mlp,gsebo,amortised"
    features: str = "auto"
    labels: Labels = "all"
    num_folds: NumFolds = 3
    outer_step: OuterStepName = "trust"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        own_name("features", self.features, {"auto": None, **PREPARATIONS})
        for name in candidate_names(self.methods):
            candidate(self._shared(self.device, 0), name).check_parameters()
        if self.labels == "train":
            require_few_label_methods(self.methods)
            if self.select_by != "accuracy":
                raise InvalidInput(
                    f"select_by={self.select_by!r} given with labels='train', where "
                    "the accuracy on validation nodes decides; expected 'accuracy'."
                )

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        for name in candidate_names(self.methods):
            # What is trained within another fit is not asked by that.
            candidate(self._shared(self.device, 0), name).require_readable(data)
        return [self._train_one(data, run) for run in runs]

    @laid_out_once()
    def _train_one(self, data: Graph, run: Run) -> Outcome:
        shared = self._shared(str(run.device), run.seed)
        if self.labels == "train":
            names = self._preparations(data)
            return choose_with_few_labels(shared, data, run, names)
        folds = stratified_folds(data, self.num_folds, run.seed)
        by_loss = self.select_by == "loss"
        metric = Patience(self.select_by, self.patience).metric
        search = Search(shared, data, folds, run, by_loss=by_loss, metric=metric)
        planting = self._planting(data, search, run) if folds else None
        if planting is not None:
            search.plant(planting)
        tried = self._without_evidence(data)
        if folds:
            with closing(search):
                tried = self._choose(data, search, planting)
        chosen = next(each for each in tried if each.chosen)
        preparation, prepared = search.prepared(chosen.preparation)
        estimator = candidate(shared, chosen.candidate, chosen.epochs)
        if chosen.candidate in PLAIN:
            taken = estimator.get_params(deep=False)
            length = {"max_epochs": chosen.epochs, "select_by": "last"}
            estimator = TrainVal(**{**taken, **length})
        outcome = train(estimator, prepared, run.stage(0))
        parameters = plain_parameters(estimator.get_params(deep=False))
        model = outcome.model
        if not isinstance(preparation, Given):
            model = replace(model, preparation=preparation)
        noticed = 0.0 if planting is None else planting.excess
        choice = Choice(tuple(tried), parameters, noticed)
        return outcome._replace(model=model, choice=choice)

    def _planting(self, data: Graph, search: Search, run: Run) -> Planting | None:
        """False edges to choose by, where edges far from labels look false."""
        preparation = self._preparations(data)[0]
        # Features that are made of edges follow whoever changes edges.
        told = preparation not in WITHOUT_FEATURES
        if not told or _SCORED not in candidate_names(self.methods):
            return None
        if data.types is not None:
            # Inoculated knows one relation, of which a false edge would be.
            return None
        estimator = candidate(self._shared(str(run.device), run.seed), _INOCULATED)
        assert isinstance(estimator, Inoculated)
        _, prepared = search.prepared(preparation)
        shift, classes = estimator.look_at(PreparedGraph(prepared, run.device), run)
        if not shift.sure:
            return None
        dose = estimator.prescribed(shift).dose
        return Planting(shift.excess, shift.error, classes.cpu(), dose, run.seed)

    def _choose(
        self, data: Graph, search: Search, planting: Planting | None
    ) -> list[Tried]:
        names = self._preparations(data)
        wanted = []
        # Whatever learns a structure has the network and the features of vanilla,
        # or of an MLP where false edges would have a say in them.
        usual = "vanilla" if planting is None else "mlp"
        plains = {
            method: method if method in PLAIN else usual
            for method in candidate_names(self.methods)
        }
        search.expect_features(list(dict.fromkeys(plains.values())), names)
        for method, plain in plains.items():
            if planting is not None and method == _SCORED:
                method = _INOCULATED
            preparation, best = search.choose_features(plain, names)
            epochs = self._epochs_at(best) if refits(method) else None
            wanted.append(Configuration(method, preparation, epochs))
        able = [one for one in wanted if search.can_try(one.method)]
        if not able:
            return self._without_evidence(data)
        ended = (
            search.compare(able) if planting is None else search.compare_planted(able)
        )
        tried = [
            Tried(
                candidate=one.method,
                preparation=one.preparation,
                epochs=self._length(one, ended, search, planting is not None),
                fold_accuracy=ended.scores[one].fold_accuracy,
                accuracy=ended.scores[one].accuracy,
                log_loss=ended.scores[one].loss,
                seconds=ended.scores[one].seconds,
                chosen=one == ended.winner,
                reason=_reason(one, ended, planting),
                **_by_metric(ended.scores[one]),
            )
            for one in able
        ]
        return tried + [_untried(one) for one in wanted if one not in able]

    def _without_evidence(self, data: Graph) -> list[Tried]:
        names, methods = self._preparations(data), candidate_names(self.methods)
        # A plain network needs no labels to validate on.
        methods.sort(key=lambda method: method not in PLAIN)
        first, *others = (_untried(Configuration(one, names[0])) for one in methods)
        epochs = min(_EPOCHS_WITHOUT_EVIDENCE, self.max_epochs)
        chosen = replace(
            first,
            chosen=True,
            epochs=epochs if first.candidate in PLAIN else None,
            reason="it is the first candidate, and no label could be held out",
        )
        return [chosen, *others]

    def _length(
        self, one: Configuration, ended: Elimination, search: Search, planted: bool
    ) -> int | None:
        if one.method not in PLAIN:
            return one.epochs
        # One fold may be enough to win, but a length is better with more of them; and
        # with false edges it is not known at which evaluation it was best.
        if one == ended.winner or planted:
            return self._epochs_at(search.best_evaluation(one))
        return self._epochs_at(ended.scores[one].best)

    def _epochs_at(self, evaluation: int) -> int:
        return min(evaluation * self.evaluate_every, self.max_epochs)

    def _preparations(self, data: Graph) -> list[str]:
        if self.features != "auto":
            return [own_name("features", self.features, PREPARATIONS)]
        return suitable_preparations(data)

    def _shared(self, device: str, seed: int) -> dict[str, Any]:
        own = {"device": device, "random_state": seed}
        return {**self.get_params(deep=False), **own}

    def _tell_choice(self, choice: Choice | None) -> None:
        assert choice is not None
        self.decision_ = choice
        self.shift_ = choice.shift
        chosen = choice.chosen
        self.chosen_ = chosen.candidate
        self.preparation_ = chosen.preparation
        self.epochs_ = chosen.epochs
        self.chosen_parameters_: dict[str, Any] = choice.parameters
        self.choice_ = [
            {
                **asdict(each),
                "fold_accuracy": list(each.fold_accuracy),
                "fold_score": list(each.fold_score),
            }
            for each in choice.tried
        ]
