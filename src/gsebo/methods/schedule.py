"""What several methods share: which nodes decide, and training on a fixed structure."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.bilevel import Optimizer
from gsebo.data import CanonicalGraph
from gsebo.errors import InvalidInput
from gsebo.methods.base import Run
from gsebo.methods.prepare import NetworkChoices, PreparedGraph, make_problem
from gsebo.structure import Fixed
from gsebo.training import (
    LoopSettings,
    NodeClassification,
    Patience,
    Progress,
    train_joint,
)
from gsebo.training.stopping import SelectBy
from gsebo.training.threads import threads_for

Trained = tuple[NodeClassification, CanonicalGraph, Progress]
"""What one run of training gives."""

StopOn = Literal["val", "holdout"]


def outer_and_stopping_nodes(
    data: Data, stop_on: StopOn, seed: int
) -> tuple[Tensor, Tensor]:
    """Split the validation nodes by their use.

    Args:
        data: The graph.
        stop_on: ``"val"``: all validation nodes serve the outer loss and decide when to
            stop; ``"holdout"``: a random half each.
        seed: Of the halves.
    """
    nodes = data.val_mask.nonzero().squeeze(-1).cpu()
    if stop_on == "val":
        return nodes, nodes
    if nodes.numel() < 2:
        raise InvalidInput(
            f"stop_on='holdout' given with {nodes.numel()} validation node; expected "
            "at least 2 to split."
        )
    generator = torch.Generator().manual_seed(seed)
    shuffled = nodes[torch.randperm(nodes.numel(), generator=generator)]
    half = nodes.numel() // 2
    return shuffled[:half].sort().values, shuffled[half:].sort().values


def loop_settings(
    run: Run,
    stop_nodes: Tensor,
    *,
    max_steps: int,
    patience: int,
    select_by: SelectBy,
) -> LoopSettings:
    """Put together how a loop runs."""
    return LoopSettings(
        max_steps=max_steps,
        patience=Patience(select_by, patience),
        stop_nodes=stop_nodes.to(run.device),
        fingerprint=run.fingerprint(),
        checkpoint=run.checkpoint,
        watcher=run.watcher,
    )


def work_of(problem: NodeClassification) -> int:
    """Multiplications of the widest product of one forward pass, roughly."""
    widest = max(p.shape[-1] for p in problem.backbone.parameters() if p.dim())
    features = problem.features
    stored = features.numel() if isinstance(features, Tensor) else len(features.values)
    return max(problem.graph.num_entries, stored) * widest


def results_of(
    prepared: PreparedGraph,
    problems: Sequence[NodeClassification],
    progresses: Sequence[Progress],
) -> list[Trained]:
    """Put together what training gives an estimator, one for each run."""
    return [
        (problem, prepared.graph, progress)
        for problem, progress in zip(problems, progresses, strict=True)
    ]


def train_on_fixed_structure(
    data: Data,
    runs: Sequence[Run],
    network: NetworkChoices,
    *,
    weight_decay: float,
    optimizer: Optimizer,
    steps_per_evaluation: int,
    max_training_steps: int,
    patience: int,
    select_by: SelectBy,
    stop_on: StopOn,
) -> list[Trained]:
    """Train the weights on the given graph, looking at validation now and then."""
    prepared = PreparedGraph(data, runs[0].device)
    problems, settings = [], []
    for run in runs:
        outer_nodes, stop_nodes = outer_and_stopping_nodes(data, stop_on, run.seed)
        problems.append(
            make_problem(
                prepared,
                network,
                Fixed(),
                outer_nodes=outer_nodes,
                weight_decay=weight_decay,
                seed=run.seed,
            )
        )
        settings.append(
            loop_settings(
                run,
                stop_nodes,
                max_steps=-(-max_training_steps // steps_per_evaluation),
                patience=patience,
                select_by=select_by,
            )
        )
    with threads_for(work_of(problems[0]), len(problems)):
        progresses = train_joint(
            problems,
            optimizer,
            steps_per_evaluation=steps_per_evaluation,
            max_training_steps=max_training_steps,
            settings=settings,
        )
    return results_of(prepared, problems, progresses)
