"""What several methods share: which nodes decide, and how a network is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from gsebo.bilevel import Optimizer, make_optimizer
from gsebo.files import Count
from gsebo.graph.graph import Graph
from gsebo.methods.base import GraphClassifier
from gsebo.methods.fitting import (
    NetworkChoices,
    Outcome,
    PreparedGraph,
    StopOn,
    joint_outcome_of,
    loop_settings,
    make_problem,
    make_task,
    outcomes_of,
    outer_and_stopping_nodes,
    over_given_graph,
    work_of,
)
from gsebo.methods.parameters import Rate, Samples, Steps, Temperature
from gsebo.methods.run import Run, threads_for
from gsebo.structure import Fixed
from gsebo.training import (
    JointProblem,
    LoopSettings,
    Task,
    train_together,
    train_weights,
)
from gsebo.training.consistency import Consistency
from gsebo.training.history import SelectBy
from gsebo.training.problem import Reduction


@dataclass(frozen=True)
class Schedule:
    """How weights are trained, and which evaluation is kept."""

    weight_decay: float
    optimizer: Optimizer
    steps_per_evaluation: int
    max_training_steps: int
    patience: int
    select_by: SelectBy
    stop_on: StopOn = "val"
    inner_reduction: Reduction = "mean"
    consistency: Consistency | None = None

    def settings(self, data: Graph, run: Run) -> LoopSettings:
        """How the loop of one run goes."""
        return loop_settings(
            run,
            outer_and_stopping_nodes(data, self.stop_on, run.seed)[1],
            max_steps=-(-self.max_training_steps // self.steps_per_evaluation),
            patience=self.patience,
            select_by=self.select_by,
        )


def train_on_fixed_structure(
    data: Graph,
    runs: Sequence[Run],
    network: NetworkChoices,
    schedule: Schedule,
    *,
    graph: Tensor | None = None,
    strengths: Tensor | None = None,
) -> list[Outcome]:
    """Train the weights on a graph that stays as it is.

    In place of the user's edges it may have others, ``[2, E]`` in any order, with
    strengths for the edges in canonical order and then the loops.
    """
    prepared = PreparedGraph(data, runs[0].device)
    ground = prepared if graph is None else prepared.with_edges(graph)
    problems = []
    for run in runs:
        outer_nodes, _ = outer_and_stopping_nodes(data, schedule.stop_on, run.seed)
        problems.append(
            make_problem(
                ground,
                network,
                Fixed(strengths),
                outer_nodes=outer_nodes,
                weight_decay=schedule.weight_decay,
                seed=run.seed,
                inner_reduction=schedule.inner_reduction,
                consistency=schedule.consistency,
            )
        )
    with threads_for(work_of(problems[0]), len(problems)):
        progresses = train_weights(
            problems,
            schedule.optimizer,
            steps_per_evaluation=schedule.steps_per_evaluation,
            max_training_steps=schedule.max_training_steps,
            settings=[schedule.settings(data, run) for run in runs],
        )
    outcomes = outcomes_of(ground, problems, progresses)
    if ground is prepared and strengths is None:
        return outcomes
    return [over_given_graph(prepared, outcome) for outcome in outcomes]


def train_jointly(
    data: Graph,
    runs: Sequence[Run],
    network: NetworkChoices,
    schedule: Schedule,
    make: Callable[[Task, Run], JointProblem],
    *,
    structure_optimizer: Optimizer | None = None,
    weight_steps: int = 1,
    in_turns: bool = False,
) -> list[Outcome]:
    """Train weights and a structure together; ``make`` lays it over a task.

    The rest is as in :func:`~gsebo.training.train_together`.
    """
    prepared = PreparedGraph(data, runs[0].device)
    problems = []
    for run in runs:
        task = make_task(
            prepared,
            network,
            weight_decay=schedule.weight_decay,
            seed=run.seed,
            inner_reduction=schedule.inner_reduction,
        )
        problems.append(make(task, run))
    work = work_of(problems[0].task)
    if problems[0].dense:
        work *= max(data.num_nodes**2 // problems[0].task.graph.num_entries, 1)
    with threads_for(work):
        progresses = train_together(
            problems,
            schedule.optimizer,
            structure_optimizer,
            steps_per_evaluation=schedule.steps_per_evaluation,
            max_training_steps=schedule.max_training_steps,
            settings=[schedule.settings(data, run) for run in runs],
            weight_steps=weight_steps,
            in_turns=in_turns,
        )
    pairs = zip(problems, progresses, strict=True)
    return [joint_outcome_of(prepared, *pair) for pair in pairs]


@dataclass(kw_only=True, eq=False, repr=False)
class EpochClassifier(GraphClassifier):
    """A method that trains the weights of a network for a number of epochs.

    Args:
        max_epochs: Number of training steps at most.
        evaluate_every: Steps between two looks at the validation nodes.
        patience: Looks without a better one before stopping.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``
            (``"first_accuracy"``: of equal ones the first), ``"balanced_accuracy"``,
            ``"f1_macro"``, ``"roc_auc"`` or ``"neg_log_loss"``, or the ``"last"``.
    """

    max_epochs: Steps = 200
    evaluate_every: Steps = 1
    patience: Count = 200
    select_by: SelectBy = "loss"

    def schedule(self, optimizer: Optimizer | None = None) -> Schedule:
        """How the parameters, or another optimizer, say that weights are trained."""
        return Schedule(
            weight_decay=self.weight_decay,
            optimizer=optimizer or make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.evaluate_every,
            max_training_steps=self.max_epochs,
            patience=self.patience,
            select_by=self.select_by,
        )

    def train_jointly(
        self,
        data: Graph,
        runs: Sequence[Run],
        make: Callable[[Task, Run], JointProblem],
        *,
        optimizer: Optimizer | None = None,
        structure_optimizer: Optimizer | None = None,
        weight_steps: int = 1,
        in_turns: bool = False,
    ) -> list[Outcome]:
        """Train weights and a structure together, as the parameters say."""
        return train_jointly(
            data,
            runs,
            self.network(),
            self.schedule(optimizer),
            make,
            structure_optimizer=structure_optimizer,
            weight_steps=weight_steps,
            in_turns=in_turns,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class TaughtByAllNodes(GraphClassifier):
    """A method whose networks may also learn from nodes without labels.

    Args:
        consistency: Weight of the disagreement between what a network says of a node,
            labelled or not, in several views of a training step, each with dropout of
            its own. 0: only labels teach.
        num_views: How many views there are.
        temperature: The smaller, the more sure of itself is what the views are drawn
            to: their mean, to the power of one over it.
        warmup: Training steps until ``consistency`` has its weight.
    """

    consistency: Rate = 0.0
    num_views: Samples = 4
    temperature: Temperature = 0.5
    warmup: Steps = 100

    def teaching(self) -> Consistency | None:
        """What nodes without labels teach, as the parameters say it."""
        if self.consistency == 0:
            return None
        return Consistency(
            self.consistency, self.num_views, self.temperature, self.warmup
        )
