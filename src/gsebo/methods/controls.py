"""The backbone on the given graph, trained as usual."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

from torch import nn

from gsebo.bilevel import make_hypergradient, make_optimizer
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph.graph import Graph
from gsebo.methods.base import GraphClassifier
from gsebo.methods.fitting import (
    Outcome,
    PreparedGraph,
    StopOn,
    make_problem,
    outcomes_of,
    work_of,
)
from gsebo.methods.parameters import (
    HypergradientName,
    OptimizerName,
    Rate,
    Steps,
)
from gsebo.methods.run import Run, threads_for
from gsebo.methods.schedule import (
    EpochClassifier,
    Schedule,
    TaughtByAllNodes,
    train_on_fixed_structure,
)
from gsebo.names import lookup
from gsebo.structure import EdgeStrength
from gsebo.training import train_structure
from gsebo.training.history import SelectBy
from gsebo.training.outer_step import OptimizerStep
from gsebo.training.problem import Reduction


@final
@dataclass(kw_only=True, eq=False, repr=False)
class MLPControl(EpochClassifier):
    """What the features alone are worth.

    Where this beats the vanilla network the given edges hurt, and any method that drops
    edges looks good.
    """

    reads_types: ClassVar[bool] = True

    supported_backbones: ClassVar[tuple[str, ...]] = ("mlp",)

    backbone: str | type | nn.Module = field(default="mlp", kw_only=False)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        return train_on_fixed_structure(data, runs, self.network(), self.schedule())


@final
@dataclass(kw_only=True, eq=False, repr=False)
class TrainVal(TaughtByAllNodes, EpochClassifier):
    """What the validation labels are worth without any structure learning.

    A method that learns from the validation nodes has more labels than the vanilla
    network. This one has as many: it is trained on the training and the validation
    nodes for a fixed number of epochs, and no node is left to select a step by.
    """

    reads_types: ClassVar[bool] = True

    select_by: SelectBy = "last"

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        labelled = copy.copy(data)
        labelled.train_mask = data.train_mask | data.val_mask
        schedule = replace(self.schedule(), consistency=self.teaching())
        return train_on_fixed_structure(labelled, runs, self.network(), schedule)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Retrain(EpochClassifier):
    """How good is the learned graph, without the training that learned it?

    Another method is fitted; its final structure is frozen, and a network with fresh
    weights is trained on it like the vanilla one. Where a method predicts with several
    graphs, their mean is the structure.

    Args:
        method: Name of the other method.
        method_options: Its parameters, beside those of the network, which are shared.
    """

    # The other method says what it does not use.
    uses_edge_attr: ClassVar[bool] = True

    # Strengths that were learned may be small, and then training takes longer.
    max_epochs: Steps = 1000
    patience: Count = 100
    method: str = "gsebo"
    method_options: dict[str, Any] | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._other(0, self.device).check_parameters()

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        outcomes = []
        for run in runs:
            other = self._other(run.seed, str(run.device))
            checkpoint = run.stage(1).checkpoint
            other.fit(data, checkpoint=checkpoint, watcher=run.watcher)
            edges, strengths = other.model_.mean_graph()
            outcomes += train_on_fixed_structure(
                data,
                [run.stage(2)],
                self.network(),
                self.schedule(),
                graph=edges,
                strengths=strengths,
            )
        return outcomes

    def _other(self, seed: int, device: str) -> GraphClassifier:
        # Not at the top: the registry names this class.
        from gsebo.methods.registry import METHODS

        options = self.method_options
        if not isinstance(self.method, str) or self.method == "retrain":
            raise InvalidInput(
                f"method={self.method!r} given; expected the name of another method."
            )
        estimator = lookup("method", self.method, METHODS).estimator
        own = {
            "backbone": self.backbone,
            "hidden_channels": self.hidden_channels,
            "num_layers": self.num_layers,
            "backbone_options": self.backbone_options,
            "random_state": seed,
            "device": device,
        }
        try:
            return estimator(**own | (options or {}))
        except TypeError as error:
            raise InvalidInput(
                f"method_options={options!r} given; expected parameters of "
                f"{self.method} ({error})."
            ) from error


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SingleLevel(EpochClassifier):
    """One strength per edge, learned like a weight: the paper's overfitting figure.

    Weights and strengths both descend on the loss of the training nodes. After every
    ``evaluate_every`` steps of the weights the strengths take a step against the
    gradient of the summed training loss at those weights, and are clipped to [0, 1].

    Args:
        outer_lr: Learning rate of the strengths; it acts on a summed loss.
        outer_optimizer: ``"sgd"``, ``"momentum"`` or ``"adam"``.
        hypergradient: ``"first_order"`` differentiates the training loss at fixed
            weights. With any other engine both levels of GSEBO see the training nodes.
        per_layer: One set of strengths for each layer instead of a shared one.
        tied: Let the two directions of an edge change by the same amount.
        learn_self_loops: Learn the strengths of the self-loops too.
    """

    reads_types: ClassVar[bool] = True

    max_epochs: Steps = 1000
    evaluate_every: Steps = 10
    outer_lr: Rate = 0.01
    outer_optimizer: OptimizerName = "sgd"
    hypergradient: HypergradientName = "first_order"
    per_layer: bool = False
    tied: bool = False
    learn_self_loops: bool = True

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=True)
        return engine.remembered_steps(self._steps_in_a_row())

    def _steps_in_a_row(self) -> int:
        """Of the weights, between two of the strengths: never more than there are."""
        return min(self.evaluate_every, self.max_epochs)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        schedule = self.schedule()
        problems = [
            make_problem(
                prepared,
                self.network(),
                EdgeStrength(
                    per_layer=self.per_layer,
                    tied=self.tied,
                    learn_self_loops=self.learn_self_loops,
                ),
                outer_nodes=prepared.inner_nodes,
                weight_decay=self.weight_decay,
                seed=run.seed,
            )
            for run in runs
        ]
        with threads_for(work_of(problems[0]), len(problems)):
            progresses = train_structure(
                problems,
                make_hypergradient(self.hypergradient, direct_term=True),
                schedule.optimizer,
                OptimizerStep(make_optimizer(self.outer_optimizer, self.outer_lr)),
                inner_steps=self._steps_in_a_row(),
                settings=[schedule.settings(data, run) for run in runs],
            )
        return outcomes_of(prepared, problems, progresses)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Frozen(TaughtByAllNodes):
    """What GSEBO gains without touching a single edge.

    The same inner steps, the same looks at validation, the same early stopping and
    selection as :class:`~gsebo.GSEBO`, but the strengths stay at their start. The
    difference to GSEBO is what the structure is worth.

    Args:
        inner_steps: Inner steps per outer step (τ).
        inner_reduction: The training loss is the ``"mean"`` or the ``"sum"`` over the
            training nodes.
        max_outer_steps: Number of outer steps at most.
        patience: Outer steps without a better one before stopping.
        stop_on: ``"val"``: all validation nodes decide; ``"holdout"``: a random half.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``
            (``"first_accuracy"``: of equal ones the first), ``"balanced_accuracy"``,
            ``"f1_macro"``, ``"roc_auc"`` or ``"neg_log_loss"``, or the ``"last"``.
    """

    reads_types: ClassVar[bool] = True

    inner_steps: Steps = 10
    inner_reduction: Reduction = "mean"
    max_outer_steps: Steps = 100
    patience: Count = 20
    stop_on: StopOn = "val"
    select_by: SelectBy = "loss"

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        schedule = Schedule(
            weight_decay=self.weight_decay,
            optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.inner_steps,
            max_training_steps=self.inner_steps * self.max_outer_steps,
            patience=self.patience,
            select_by=self.select_by,
            stop_on=self.stop_on,
            inner_reduction=self.inner_reduction,
            consistency=self.teaching(),
        )
        return train_on_fixed_structure(data, runs, self.network(), schedule)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Vanilla(TaughtByAllNodes, EpochClassifier):
    """The network as its authors meant it: the baseline of every comparison.

    With ``consistency`` it also learns from nodes without labels: what that is worth
    on a graph that stays as it is.
    """

    reads_types: ClassVar[bool] = True

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        schedule = replace(self.schedule(), consistency=self.teaching())
        return train_on_fixed_structure(data, runs, self.network(), schedule)
