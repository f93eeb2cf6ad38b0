"""gsebo as a contender: only this file tells peers what is inside gsebo."""

from contextlib import AbstractContextManager
from typing import final

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.setting import LAYERS, Setting
from benchmarks.task import Task
from gsebo import GSEBO
from gsebo.bilevel import begin, make_hypergradient, make_optimizer
from gsebo.methods.fitting import PreparedGraph, work_of
from gsebo.methods.run import threads_for
from gsebo.training import NodeClassification


@final
class Ours:
    """One outer step at a time, as :meth:`gsebo.GSEBO.fit` takes them.

    Args:
        data: A graph with masks, on any device.
        setting: What to train and how.
        engine: Name of the hypergradient.
    """

    def __init__(
        self, data: Data, setting: Setting, *, engine: str = "reverse"
    ) -> None:
        self.setting = setting
        self.problem = make_problem(data, setting)
        self._engine = make_hypergradient(engine, direct_term=setting.direct_term)
        self._inner = make_optimizer(setting.optimizer, setting.inner_rate)
        self._outer = make_optimizer("sgd", setting.outer_rate)
        self._iterate = begin(self._inner, self.problem.initial_weights())
        self._strengths = self.problem.initial_outer()
        self._outer_state = self._outer.init(self._strengths)

    def hypergradient(self) -> Tensor:
        """Take the inner steps; return the derivative by each entry's strength."""
        return self._advance()["change"]

    def outer_step(self) -> None:
        """Take the inner steps and then one step of the strengths."""
        moved, self._outer_state = self._outer.update(
            self._advance(), self._outer_state, self._strengths
        )
        self._strengths = self.problem.structure.project(moved)

    def strength(self) -> Tensor:
        """Strength of each entry by now, ``[entries]``."""
        return self.problem.strengths(self._strengths).detach()

    def threads(self) -> AbstractContextManager[None]:
        """As many threads as a fit would take."""
        return threads_for(work_of(self.problem))

    def _advance(self) -> dict[str, Tensor]:
        result = self._engine.run(
            self.problem,
            self._inner,
            self._iterate,
            self._strengths,
            self.setting.tau,
        )
        self._iterate = result.iterate
        return result.gradient


def make_problem(data: Data, setting: Setting) -> NodeClassification:
    """Build the bilevel problem as a fit would, without its checks of the graph."""
    model = estimator(setting)
    prepared = PreparedGraph(data, torch.device(setting.device))
    return model.make_problem(prepared, setting.seed)


def make_task(data: Data, setting: Setting) -> Task:
    """Say the same problem in plain tensors."""
    problem = make_problem(data, setting)
    pattern = problem.graph.pattern
    entries = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
    return Task(
        x=data.x.to_dense().to(setting.device),
        edge_index=entries.long(),
        strength=problem.strengths(problem.initial_outer()).detach().clone(),
        labels=problem.labels,
        train=problem.inner_nodes,
        validation=problem.outer_nodes,
        num_classes=int(data.y[data.train_mask | data.val_mask].max()) + 1,
        weights={
            name: weight.detach().clone()
            for name, weight in problem.backbone.named_parameters()
        },
    )


def fit(data: Data, setting: Setting, outer_steps: int) -> None:
    """Run a whole fit that never stops early."""
    estimator(setting, outer_steps).fit(data)


def fit_replicas(data: Data, setting: Setting, outer_steps: int, replicas: int) -> None:
    """Run the fits of several seeds at once."""
    estimator(setting, outer_steps).fit(data, replicas=replicas)


def kernel_seconds(ours: Ours) -> float | None:
    """Sum of the pure kernel times of one outer step, without anything around them.

    Every kernel call of the programs is timed alone; ``None`` where a network has none
    and autograd calls the kernels.
    """
    programs = ours.problem.programs
    if programs is None:
        return None
    outer = programs.outer(direct_term=ours.setting.direct_term)
    with ours.threads():
        training, replay, last = (
            program.kernel_seconds()
            for program in (programs.training, programs.replay, outer)
        )
    return ours.setting.tau * (training + replay) + last


def estimator(setting: Setting, outer_steps: int = 1) -> GSEBO:
    """The estimator of a setting, which never stops early."""
    return GSEBO(
        setting.backbone,
        hidden_channels=setting.hidden,
        num_layers=LAYERS,
        dropout=setting.dropout,
        inner_steps=setting.tau,
        inner_lr=setting.inner_rate,
        inner_optimizer=setting.optimizer,
        weight_decay=setting.weight_decay,
        outer_step="paper",
        outer_lr=setting.outer_rate,
        max_outer_steps=outer_steps,
        patience=outer_steps,
        direct_term=setting.direct_term,
        device=setting.device,
        random_state=setting.seed,
    )
