"""GSEBO on batches: strengths of the edges at hand, one batch after another."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.backbone import Backbone
from gsebo.bilevel import make_hypergradient, make_optimizer
from gsebo.data.arrays import GraphArrays
from gsebo.data.folder import GraphFolder
from gsebo.data.scratch_folder import ScratchFolder
from gsebo.methods.amortised_batched import named_weights
from gsebo.methods.base import Run
from gsebo.methods.batched import (
    BatchChoices,
    column_on_disk,
    numbers,
    table_for,
    whole_column,
)
from gsebo.methods.folder_fit import FolderOutcome, build, checksum, learnable
from gsebo.methods.large_model import LargeModel
from gsebo.methods.outcome import Outcome, outcome_of
from gsebo.methods.prepare import PreparedGraph
from gsebo.methods.schedule import loop_settings, outer_and_stopping_nodes, work_of
from gsebo.structure.in_parts import EdgesInParts
from gsebo.training.batches.bilevel import (
    BatchedBilevel,
    train_bilevel_on_batches,
    train_on_given,
)
from gsebo.training.batches.outer_update import OuterUpdate
from gsebo.training.distributed.tables import EntryTable
from gsebo.training.given import beside, is_preferable
from gsebo.training.progress import Progress
from gsebo.training.threads import threads_for

if TYPE_CHECKING:
    from gsebo.methods.gsebo import GSEBO


def train_on_batches(
    method: GSEBO, data: Data, run: Run, choices: BatchChoices
) -> Outcome:
    """Fit on batches of a graph that is in memory, where all strengths have room."""
    prepared = PreparedGraph(data, run.device)
    whole = method.make_problem(prepared, run.seed)
    nodes = outer_and_stopping_nodes(data, method.stop_on, run.seed)
    with threads_for(work_of(whole)):
        progress = _learn(
            method, GraphArrays.of(data), whole.backbone, nodes, run, choices
        )
    column = torch.from_numpy(whole_column(_best(progress), "change"))
    best = {"change": column.to(run.device)}
    return outcome_of(prepared, whole, replace(progress, best_outer=best))


def fit_on_folder(
    method: GSEBO, folder: GraphFolder, run: Run, choices: BatchChoices
) -> FolderOutcome:
    """Fit on batches of a graph on disk."""
    arrays = learnable(folder)
    backbone = build(method.network(), folder, run.seed, run.device)
    assert arrays.val is not None
    masks = Data(val_mask=torch.from_numpy(np.array(arrays.val)))
    nodes = outer_and_stopping_nodes(masks, method.stop_on, run.seed)
    files = ScratchFolder()
    progress = _learn(method, arrays, backbone, nodes, run, choices, files.path)
    trained = copy.deepcopy(backbone)
    weights = named_weights(backbone, progress.best_weights)
    trained.load_state_dict(weights, strict=False)
    model = LargeModel(
        backbone=trained,
        own=column_on_disk(_best(progress), "change", files),
        graph=checksum(folder),
        num_classes=int(folder.manifest.num_classes or 0),
        num_features=arrays.num_features,
        files=files,
    )
    return FolderOutcome(model, progress)


def _learn(
    method: GSEBO,
    arrays: GraphArrays,
    backbone: Backbone,
    outer_and_stop: tuple[Tensor, Tensor],
    run: Run,
    choices: BatchChoices,
    folder: Path | None = None,
) -> Progress:
    layers = backbone.num_propagations if method.per_layer else None
    loops = method.learn_self_loops and backbone.self_loops
    graph = choices.graph(
        arrays,
        backbone,
        EdgesInParts(layers=layers, learn_self_loops=loops),
        weight_decay=method.weight_decay,
        seed=run.seed,
        device=run.device,
    )
    update = OuterUpdate(
        graph,
        make_hypergradient(method.hypergradient, direct_term=method.direct_term),
        make_optimizer(method.inner_optimizer, method.inner_lr),
        method.make_outer_step(),
    )
    assert arrays.train is not None
    outer_nodes, stop_nodes = (nodes.numpy() for nodes in outer_and_stop)
    problem = BatchedBilevel(
        graph,
        numbers(arrays.train),
        outer_nodes,
        stop_nodes,
        table_for(graph, update.columns(), folder, sharded=method.shard_strengths),
    )
    settings = loop_settings(
        run,
        problem.evaluated.stop_nodes,
        max_steps=method.max_outer_steps,
        patience=method.patience,
        select_by=method.select_by,
        group=graph.group,
    )
    progress = train_bilevel_on_batches(
        problem, update, inner_steps=method.inner_steps, settings=settings
    )
    if method.outer_step == "paper":
        return progress
    given = train_on_given(
        problem,
        make_optimizer(method.inner_optimizer, method.inner_lr),
        inner_steps=method.inner_steps,
        settings=beside(progress, settings),
    )
    if not is_preferable(given, progress, settings.patience):
        return progress
    assert progress.table is not None
    progress.table.clear()
    return replace(given, table=progress.table)


def _best(progress: Progress) -> EntryTable:
    """The strengths of the best step."""
    table = progress.best_table or progress.table
    assert table is not None
    return table
