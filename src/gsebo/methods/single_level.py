"""Strengths from the training loss alone: the control for the second level."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch_geometric.data import Data

from gsebo.bilevel import make_hypergradient, make_optimizer
from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome, outcomes_of
from gsebo.methods.parameters import require_flag, require_not_negative
from gsebo.methods.prepare import PreparedGraph, make_problem
from gsebo.methods.schedule import steps_to_walk_back, work_of
from gsebo.structure import EdgeStrength
from gsebo.training import train_bilevel
from gsebo.training.outer_step import OptimizerStep
from gsebo.training.threads import threads_for


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

    max_epochs: int = 1000
    evaluate_every: int = 10
    outer_lr: float = 0.01
    outer_optimizer: str = "sgd"
    hypergradient: str = "first_order"
    per_layer: bool = False
    tied: bool = False
    learn_self_loops: bool = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_not_negative(outer_lr=self.outer_lr)
        require_flag(
            per_layer=self.per_layer,
            tied=self.tied,
            learn_self_loops=self.learn_self_loops,
        )
        make_optimizer(self.outer_optimizer, self.outer_lr)
        make_hypergradient(self.hypergradient, direct_term=True)

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=True)
        return steps_to_walk_back(engine, self._steps_in_a_row())

    def _steps_in_a_row(self) -> int:
        """Of the weights, between two of the strengths: never more than there are."""
        return min(self.evaluate_every, self.max_epochs)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
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
            progresses = train_bilevel(
                problems,
                make_hypergradient(self.hypergradient, direct_term=True),
                schedule.optimizer,
                OptimizerStep(make_optimizer(self.outer_optimizer, self.outer_lr)),
                inner_steps=self._steps_in_a_row(),
                settings=[schedule.settings(data, run) for run in runs],
            )
        return outcomes_of(prepared, problems, progresses)
