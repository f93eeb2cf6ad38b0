"""Amortised strengths on batches of a graph, in memory or on disk."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from gsebo.bilevel import Tree, make_optimizer
from gsebo.bilevel.tree import unflatten
from gsebo.data.formats.folder import GraphFolder
from gsebo.distributed.tables import EntryTable
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.graph import Graph
from gsebo.graph.mapped import ScratchFolder
from gsebo.loader.sampler import RowSampler
from gsebo.methods.base import Run
from gsebo.methods.batched import (
    BatchChoices,
    batch_choices,
    column_on_disk,
    numbers,
    table_for,
    whole_column,
)
from gsebo.methods.folder_fit import FolderOutcome, build, graph_checksum, learnable
from gsebo.methods.label_parts import LabelParts, division_of, parts_of
from gsebo.methods.outcome import Outcome
from gsebo.methods.plain_training import refit
from gsebo.methods.prepare import PreparedGraph, make_task
from gsebo.methods.schedule import work_of
from gsebo.model.extension import AmortisedExtension
from gsebo.model.fitted import FittedModel
from gsebo.model.large import LargeModel
from gsebo.nn import Backbone
from gsebo.nn.base import Features
from gsebo.sparse import Pattern
from gsebo.structure.amortised import AmortisedInParts
from gsebo.structure.base import Predictions
from gsebo.structure.in_parts import VanillaInParts
from gsebo.training import NodeClassification, Progress
from gsebo.training.batched_graph import Nodes
from gsebo.training.batched_problem import (
    BatchedProblem,
    Guess,
    own_columns,
    seen_on_part,
    train_fresh,
    train_on_one_batch,
)
from gsebo.training.tape_derivatives import FLAT
from gsebo.training.threads import threads_for

if TYPE_CHECKING:
    from gsebo.methods.amortised import Amortised

# Rows of features that a network without edges learns from at once.
_ROWS = 2**15


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """What a fit on batches has learned.

    Attributes:
        structure: The function that scores edges, with its units.
        shared: Its parameters.
        table: What each edge has of its own.
        guess: Weights of the network that knows features alone; ``None`` where the
            function looks at no predictions.
        first: Weights of the network whose predictions the function looks at.
        weights: Of the network that predicts.
        progress: How learning the structure went.
    """

    structure: AmortisedInParts
    shared: Tree
    table: EntryTable | None
    guess: Tree | None
    first: Tree | None
    weights: Tree
    progress: Progress


@final
class AmortisedOnBatches:
    """One fit on batches.

    Args:
        method: Its parameters.
        arrays: The graph.
        backbone: The network, with its first weights.
        guess: The network that knows features alone, with its first weights.
        run: Seed and device.
        choices: How batches are drawn.
    """

    def __init__(
        self,
        method: Amortised,
        arrays: GraphArrays,
        backbone: Backbone,
        guess: Backbone,
        run: Run,
        choices: BatchChoices,
    ) -> None:
        self._method, self._arrays, self._run = method, arrays, run
        self._guess = guess
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed)
            self.structure = AmortisedInParts(
                method.make_structure(), arrays, backbone.num_propagations, run.device
            )
        self.graph = choices.graph(
            arrays,
            backbone,
            self.structure,
            weight_decay=method.weight_decay,
            seed=run.seed,
            device=run.device,
        )
        # Features alone need no edges.
        self._rows = replace(
            self.graph,
            sampler=RowSampler(arrays, _ROWS, run.seed),
            backbone=guess,
            structure=VanillaInParts(),
            batches_per_step=1,
        )
        self._optimizer = make_optimizer(method.inner_optimizer, method.inner_lr)

    def learn(self, folder: Path | None = None) -> Learned:
        """Learn the structure, then fresh weights on all labelled nodes.

        Args:
            folder: Where to keep what each edge has of its own; in memory by default.
        """
        method, arrays = self._method, self._arrays
        labelled, parts = self._parts()
        guesses = None
        if method.predictions != "none":
            guesses = [
                self.guess_by(self._train_guess(nodes.numpy())) for nodes in parts.inner
            ]
        assert arrays.train is not None and arrays.val is not None
        columns = own_columns(self.structure, method.make_outer_step())
        problem = BatchedProblem(
            self.graph,
            division_of(parts, method.label_use, method.inner_share, self._run.seed),
            numbers(arrays.train),
            numbers(arrays.val),
            table=table_for(
                self.graph, columns, folder, sharded=method.shard_strengths
            ),
            guesses=guesses,
            own_predictions=method.predictions == "both",
        )
        progress = method.learn(
            problem, self._run, problem.evaluated.stop_nodes, self.graph.group
        )
        return self._refit(progress, labelled)

    def _refit(self, progress: Progress, labelled: Nodes) -> Learned:
        """Fresh weights on the learned structure, as on a whole graph."""
        method = self._method
        shared, table = progress.best_outer, progress.table

        def train(guess: Tree | None, first: Tree | None) -> Tree:
            guess_by = None if guess is None else self.guess_by(guess)

            def seen(
                problem: NodeClassification, weights: Tree, outer: Tree
            ) -> Predictions | None:
                return seen_on_part(
                    problem,
                    weights if first is None else first,
                    outer,
                    guess=guess_by,
                    own_predictions=first is not None,
                )

            return train_fresh(
                self.graph,
                labelled,
                self._optimizer,
                method.refit_epochs,
                shared=shared,
                table=table,
                state_at=seen,
            )

        found = refit(method.predictions, lambda: self._train_guess(labelled), train)
        return Learned(self.structure, shared, table, *found, progress)

    def guess_by(self, weights: Tree) -> Guess:
        """Class probabilities by the network that knows features alone."""
        named = named_weights(self._guess, weights)

        @torch.no_grad()
        def guess(features: Features) -> Tensor:
            inputs = (features, _no_edges(features), None, None)
            logits: Tensor = functional_call(self._guess, named, inputs)
            return logits.softmax(-1)

        return guess

    def _train_guess(self, nodes: Nodes) -> Tree:
        epochs = self._method.refit_epochs
        if len(nodes) <= _ROWS:
            return train_on_one_batch(self._rows, nodes, self._optimizer, epochs)
        return train_fresh(self._rows, nodes, self._optimizer, epochs, shared={})

    def _parts(self) -> tuple[Nodes, LabelParts]:
        """The labelled nodes, and how they are divided: no other node is looked at."""
        arrays, method = self._arrays, self._method
        assert arrays.train is not None and arrays.val is not None
        assert arrays.y is not None
        labelled = numbers(arrays.train | arrays.val)
        small = Graph(
            y=torch.from_numpy(np.asarray(arrays.y[labelled])),
            train_mask=torch.from_numpy(np.asarray(arrays.train[labelled])),
            val_mask=torch.from_numpy(np.asarray(arrays.val[labelled])),
        )
        found = parts_of(
            small,
            method.label_use,
            method.num_folds,
            self._run.seed,
            torch.device("cpu"),
        )
        every = torch.from_numpy(labelled)
        inner, outer = ([every[nodes] for nodes in each] for each in found)
        return labelled, LabelParts(inner, outer)


def named_weights(backbone: Backbone, weights: Tree) -> Tree:
    """Cut a vector of weights into the parameters of a network."""
    named: Tree = {
        name: weight
        for name, weight in backbone.named_parameters()
        if weight.requires_grad
    }
    return unflatten(weights[FLAT], named)


def _no_edges(features: Features) -> Pattern:
    none = torch.empty(0, dtype=torch.int64, device=features.device)
    return Pattern.from_positions(none, none, features.shape[0])


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


def fit_amortised_on_folder(
    method: Amortised, folder: GraphFolder, run: Run
) -> FolderOutcome:
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
        graph=graph_checksum(folder),
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
