"""Outer steps of two estimators, by the loops that their fits run.

Each call starts from the same weights and goes through everything that a fit does for
so many outer steps: inner steps, hypergradient, update, projection and evaluation.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from benchmarks.ours import estimator
from benchmarks.setting import LAYERS, Setting
from gsebo import Amortised
from gsebo.bilevel import make_hypergradient, make_optimizer
from gsebo.methods.amortised_fit import FullBatchFit
from gsebo.methods.base import GraphClassifier
from gsebo.methods.fitting import PreparedGraph, loop_settings, work_of
from gsebo.methods.folds import LabelUse
from gsebo.methods.run import Run, threads_for
from gsebo.structure import AmortisedStrength
from gsebo.training import FullBatch, NodeClassification, Progress, train_structure

OUTER_STEPS = 5
"""How many are timed at once: a whole round of the networks that take turns."""
# Few: how good the guesses are that a structure looks at does not change its cost.
_GUESS_EPOCHS = 2


@dataclass(frozen=True, eq=False)
class EstimatorLoop:
    """Some outer steps of an estimator, ready to be taken again and again.

    Attributes:
        outer_steps: Take them; returns where they lead.
        count: How many those are.
        problem: What the first of them solves.
    """

    outer_steps: Callable[[], Progress]
    count: int
    problem: NodeClassification

    def threads(self) -> AbstractContextManager[None]:
        """As many threads as a fit would take."""
        return threads_for(work_of(self.problem))


def per_edge(data: Data, setting: Setting, outer_steps: int) -> EstimatorLoop:
    """Outer steps of :class:`gsebo.GSEBO`, an evaluation after each."""
    model = estimator(setting, outer_steps)
    prepared, run = _start(model, data, setting)
    problem = model.make_problem(prepared, setting.seed)
    settings = loop_settings(
        run,
        problem.outer_nodes,
        max_steps=outer_steps,
        patience=outer_steps,
        select_by=model.select_by,
    )

    def loop() -> Progress:
        (progress,) = train_structure(
            [problem],
            make_hypergradient(model.hypergradient, direct_term=model.direct_term),
            make_optimizer(model.inner_optimizer, model.inner_lr),
            model.make_outer_step(),
            inner_steps=model.inner_steps,
            settings=[settings],
        )
        return progress

    return EstimatorLoop(loop, outer_steps, problem)


def amortised(data: Data, setting: Setting, label_use: LabelUse) -> EstimatorLoop:
    """Outer steps of :class:`gsebo.Amortised`, an evaluation after each round.

    What a setting does not say is as the estimator has it by default.
    """
    model = Amortised(
        setting.backbone,
        hidden_channels=setting.hidden,
        num_layers=LAYERS,
        dropout=setting.dropout,
        inner_steps=setting.tau,
        inner_lr=setting.inner_rate,
        inner_optimizer=setting.optimizer,
        weight_decay=setting.weight_decay,
        max_outer_steps=OUTER_STEPS,
        refit_epochs=_GUESS_EPOCHS,
        label_use=label_use,
        device=setting.device,
        random_state=setting.seed,
    )
    prepared, run = _start(model, data, setting)
    fit = FullBatchFit(model, prepared, None, run)
    with threads_for(fit.work):
        problem = fit.networks()
    assert isinstance(fit.source, FullBatch)
    rounds = -(-OUTER_STEPS // problem.num_networks)
    return EstimatorLoop(
        lambda: model.learn(problem, run, fit.stop_nodes, None),
        rounds * problem.num_networks,
        fit.source.problem(problem.division, 0),
    )


def on_nodes_of(data: Data, problem: NodeClassification) -> Data:
    """The graph with the nodes of a problem as its training and validation nodes."""
    other = copy(data)
    for name, nodes in (
        ("train_mask", problem.inner_nodes),
        ("val_mask", problem.outer_nodes),
    ):
        other[name] = torch.zeros_like(data[name]).index_fill_(0, nodes, True)
    return other


def gather_evidence(loop: EstimatorLoop) -> None:
    """What is done for an amortised structure once, before its first step."""
    structure = loop.problem.structure
    assert isinstance(structure, AmortisedStrength)
    structure.evidence_of(loop.problem.graph, None, loop.problem.features)


def _start(
    model: GraphClassifier, data: Data, setting: Setting
) -> tuple[PreparedGraph, Run]:
    device = torch.device(setting.device)
    run = Run(model, data, setting.seed, device, None, None)
    return PreparedGraph(data, device), run
