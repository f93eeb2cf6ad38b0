"""What a fit with amortised strengths on batches leaves behind."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch.func import functional_call

from gsebo.backbone import Backbone
from gsebo.bilevel import Tree
from gsebo.data.arrays import GraphArrays
from gsebo.data.folder import GraphFolder
from gsebo.data.scratch_folder import ScratchFolder
from gsebo.methods.amortised_batched import AmortisedOnBatches, Learned, named_weights
from gsebo.methods.amortised_extension import AmortisedExtension
from gsebo.methods.base import Run
from gsebo.methods.batched import batch_choices, column_on_disk, whole_column
from gsebo.methods.fitted import FittedModel
from gsebo.methods.folder_fit import FolderOutcome, build, checksum, learnable
from gsebo.methods.large_model import LargeModel
from gsebo.methods.outcome import Outcome
from gsebo.methods.prepare import PreparedGraph, make_task
from gsebo.methods.schedule import work_of
from gsebo.training.threads import threads_for

if TYPE_CHECKING:
    from gsebo.methods.amortised import Amortised


def fit_in_memory(method: Amortised, prepared: PreparedGraph, run: Run) -> Outcome:
    """Fit on batches of a graph that is in memory, where all strengths have room."""
    data, decay = prepared.data, method.weight_decay
    tasks = [
        make_task(prepared, network, weight_decay=decay, seed=run.seed)
        for network in (method.network(), method.guess_network())
    ]
    backbone, guess = (task.backbone for task in tasks)
    arrays = GraphArrays.of(data)
    fit = AmortisedOnBatches(
        method, arrays, backbone, guess, run, batch_choices(method)
    )
    with threads_for(work_of(tasks[0])):
        learned = fit.learn()
    return _outcome(prepared, learned, fit, backbone, guess)


@torch.no_grad()
def _outcome(
    prepared: PreparedGraph,
    learned: Learned,
    fit: AmortisedOnBatches,
    backbone: Backbone,
    guess: Backbone,
) -> Outcome:
    scorer, features = learned.structure.structure, prepared.features
    scorer.restore({**scorer.state_dict(), **learned.shared}, backbone.normalise)
    topology = prepared.topology(self_loops=backbone.self_loops)
    evidence = scorer.evidence_of(topology, None, features)
    own = None
    if learned.table is not None:
        own = torch.from_numpy(whole_column(learned.table, "own"))
        own = own.to(prepared.device)
    state = None
    first = None if learned.first is None else named_weights(backbone, learned.first)
    if learned.guess is not None:
        guessed = fit.guess_by(learned.guess)(features)
        state = guessed, guessed
        if first is not None:
            at_first = scorer.weights(topology, evidence, None, state, own)
            inputs = scorer.strengths(topology.pattern, at_first), None
            logits = functional_call(
                backbone, first, (features, topology.pattern, *inputs)
            )
            state = guessed, logits.softmax(-1)
    weights = scorer.weights(topology, evidence, None, state, own)
    strengths = scorer.strengths(topology.pattern, weights)
    scorer.forget()
    backbone.load_state_dict(named_weights(backbone, learned.weights), strict=False)
    if learned.guess is not None:
        guess.load_state_dict(named_weights(guess, learned.guess), strict=False)
    model = FittedModel(
        backbone=backbone,
        graph=prepared.graph,
        strengths=strengths,
        start=backbone.initial_strength(topology.pattern),
        learned=True,
        num_features=prepared.data.x.shape[1],
        extension=AmortisedExtension(
            scorer, guess if learned.guess is not None else None, first, weights
        ),
    )
    logits = backbone(features, topology.pattern, strengths, None)
    return Outcome(model, learned.progress, logits.softmax(-1))


def fit_on_folder(method: Amortised, folder: GraphFolder, run: Run) -> FolderOutcome:
    """Fit on batches of a graph on disk."""
    arrays = learnable(folder)
    backbone, guess = (
        build(network, folder, run.seed, run.device)
        for network in (method.network(), method.guess_network())
    )
    fit = AmortisedOnBatches(
        method, arrays, backbone, guess, run, batch_choices(method)
    )
    files = ScratchFolder()
    learned = fit.learn(files.path)
    scorer = learned.structure.structure
    scorer.restore({**scorer.state_dict(), **learned.shared}, backbone.normalise)
    table = learned.table
    own = None if table is None else column_on_disk(table, "own", files)
    model = LargeModel(
        backbone=_with(backbone, learned.weights),
        own=own,
        files=files,
        graph=checksum(folder),
        num_classes=int(folder.manifest.num_classes or 0),
        num_features=arrays.num_features,
        scorer=scorer,
        guess=None if learned.guess is None else _with(guess, learned.guess),
        first=None if learned.first is None else _with(backbone, learned.first),
    )
    return FolderOutcome(model, learned.progress)


def _with(backbone: Backbone, weights: Tree) -> Backbone:
    """A copy of a network with other weights."""
    loaded = copy.deepcopy(backbone)
    loaded.load_state_dict(named_weights(backbone, weights), strict=False)
    return loaded
