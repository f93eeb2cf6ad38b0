"""One fit of amortised strengths, on a whole graph or on batches of one.

First networks that know features alone, one for each fold, then the structure with
networks that take turns, then fresh networks on it: one that knows features alone, one
on the graph as scored with that, whose predictions the structure compares, and the one
that predicts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.bilevel.tree import unflatten
from gsebo.data import num_classes
from gsebo.distributed.group import Group
from gsebo.errors import InvalidInput
from gsebo.graph import Propagation, Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.graph import Graph
from gsebo.loader.neighbor import BoundNeighbors
from gsebo.methods.batched import batched_graph, numbers, whole_column
from gsebo.methods.fitting import (
    Outcome,
    PreparedGraph,
    fitted_on,
    make_problem,
    outcome_of,
    work_of,
)
from gsebo.methods.folds import (
    FoldNodes,
    Lead,
    division_of,
    fold_nodes,
    taught_labels,
)
from gsebo.methods.run import Run, drawn_by, threads_for
from gsebo.model.layerwise import ChunkedGraph
from gsebo.model.scorer import Scorer
from gsebo.nn import Backbone
from gsebo.sparse.numba_compile import thread_limit
from gsebo.structure import AmortisedStrength, Fixed, Predictions, Structure
from gsebo.structure.amortised import BatchedAmortisedStrength
from gsebo.structure.base import BatchedFixed
from gsebo.structure.shift import Shift, edge_shift
from gsebo.training import (
    FullBatch,
    LoopSettings,
    Member,
    Networks,
    NodeClassification,
    Patience,
    Progress,
    train_weights,
)
from gsebo.training.batches import (
    BatchedGraph,
    MiniBatches,
    Nodes,
    train_fresh,
    train_on_one_batch,
)
from gsebo.training.inoculation import Inoculation
from gsebo.training.loop import shared_out
from gsebo.training.networks import FeaturesOnly, StateAt, TrainingGraph, seen_state
from gsebo.training.tape_derivatives import FLAT

if TYPE_CHECKING:
    from gsebo.methods.amortised import Amortised, AmortisedClassifier

# Steps between two looks at validation nodes, and looks without a better one before the
# last training stops, where these are for stopping alone.
_LOOK_EVERY, _PATIENCE = 5, 40
# Rows of features that a network without edges learns from at once.
_ROWS = 2**15


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """What a fit has learned.

    Attributes:
        networks: What the structure was learned with.
        progress: How that went.
        features_only: Weights of the network that knows features alone; ``None`` where
            the structure compares no predictions.
        first: Weights of the network whose predictions it compares.
        weights: Of the network that predicts; ``None`` where those that learned the
            structure do.
    """

    networks: Networks
    progress: Progress
    features_only: Tree | None = None
    first: Tree | None = None
    weights: Tree | None = None


@final
class KnownByFeatures(NamedTuple):
    """What features alone say of nodes, whatever the edges are.

    Attributes:
        of_folds: By a network for each fold, which leaves its nodes out.
        fresh: Weights of a network that has learned from all labelled nodes, where the
            fit trains afresh at the end.
    """

    of_folds: list[FeaturesOnly]
    fresh: Tree


class AmortisedFit(ABC):
    """A fit, apart from where its networks learn.

    Attributes:
        backbone: The network.
        alone: The network that knows features alone.
        structure: The function that scores edges, with its units.
        source: What the networks learn on.
        stop_nodes: Evaluated nodes that a record is about.
        labelled: All labelled nodes.
        folds: How they are divided.
        work: How much one propagation computes.
        group: Who trains together.
    """

    backbone: Backbone
    alone: Backbone
    structure: AmortisedStrength
    source: TrainingGraph
    stop_nodes: Tensor
    labelled: Tensor
    folds: FoldNodes
    work: int = 0
    group: Group | None = None

    def __init__(self, method: AmortisedClassifier, run: Run) -> None:
        self.method, self.run = method, run
        self.optimizer = make_optimizer(method.inner_optimizer, method.inner_lr)
        rate = method.inner_lr if method.refit_lr is None else method.refit_lr
        self.refit_optimizer = make_optimizer(method.inner_optimizer, rate)
        self._known: KnownByFeatures | None = None

    @abstractmethod
    def train_features_only(self, each: Sequence[Tensor]) -> list[Tree]:
        """Weights of networks that know features alone, each learned from its nodes."""

    @abstractmethod
    def features_only(self, weights: Tree) -> FeaturesOnly:
        """What such a network says of the nodes of a graph."""

    @abstractmethod
    def train(self, progress: Progress, state_at: StateAt) -> Tree:
        """Fresh weights on the learned structure, from all labelled nodes."""

    def learn(self) -> Learned:
        """Learn the structure, then fresh weights on all labelled nodes."""
        networks = self.networks()
        progress = self.method.learn(networks, self.run, self.stop_nodes, self.group)
        if not self.method.refit:
            return Learned(networks, progress)
        alone = first = chosen = None
        if self.method.predictions != "none":
            alone = self.known_by_features().fresh
            chosen = self.features_only(alone)
        if self.method.predictions == "both":
            state_at = partial(seen_state, features_only=chosen, network=False)
            first = self.train(progress, state_at)

        def seen(
            problem: NodeClassification, own: Tree, outer: Tree
        ) -> Predictions | None:
            compared = first is not None
            weights = first if first is not None else own
            return seen_state(
                problem, weights, outer, features_only=chosen, network=compared
            )

        return Learned(networks, progress, alone, first, self.train(progress, seen))

    def settled(self, given: PreparedGraph, learned: Outcome) -> Outcome:
        """What was learned, or what is to be taken instead."""
        return learned

    def networks(self) -> Networks:
        """The networks that learn the structure in turns."""
        method, folds = self.method, self.folds
        chosen: list[FeaturesOnly] | None = None
        if method.predictions != "none":
            chosen = self.known_by_features().of_folds
            if method.label_use == "cross":
                chosen = [self._kept(partial(_stitched, chosen, folds.outer))]
        return Networks(
            self.source,
            division_of(folds, method.label_use, method.inner_share, self.run.seed),
            chosen,
            own_predictions=method.predictions == "both",
        )

    def known_by_features(self) -> KnownByFeatures:
        """What features alone say, learned once; all at once, where there are cores."""
        if self._known is None:
            folds = self.folds.inner
            each = [*folds, self.labelled] if self.method.refit else folds
            with threads_for(self.work, len(each)):
                found = self.train_features_only(each)
            said = [self.features_only(weights) for weights in found[: len(folds)]]
            self._known = KnownByFeatures(said, found[-1])
        return self._known

    def know(self, known: KnownByFeatures) -> None:
        """Take over what a fit with the same labels has learned from features."""
        self._known = known

    def _kept(self, features_only: FeaturesOnly) -> FeaturesOnly:
        """The same, found once where the graph is always the same one."""
        if not isinstance(self.source, FullBatch):
            return features_only
        predicted = features_only(self.source.base)
        return lambda problem: predicted


def _stitched(
    each: Sequence[FeaturesOnly], held_out: Sequence[Tensor], on: NodeClassification
) -> Tensor:
    """Their mean; of a labelled node, what that one says which never saw its label."""
    found = [one(on) for one in each]
    mean = torch.stack(found).mean(0)
    for own, nodes in zip(found, held_out, strict=True):
        here = nodes
        if on.nodes is not None:
            here = torch.isin(on.nodes, nodes.cpu()).nonzero()
        here = here.flatten().to(mean.device)
        mean[here] = own[here]
    return mean


@final
class FullBatchFit(AmortisedFit):
    """A fit on all of a graph at once; ``candidate`` says which edges are not given."""

    def __init__(
        self,
        method: AmortisedClassifier,
        prepared: PreparedGraph,
        candidate: Tensor | None,
        run: Run,
        dose: float = 0.0,
    ) -> None:
        super().__init__(method, run)
        self._prepared, data = prepared, prepared.data
        self._val = val = data.val_mask.nonzero().squeeze(-1)
        taught = taught_labels(data, method.labels)
        self.structure = method.make_structure()
        base = self._problem(self.structure, val, candidate, inside=True)
        inoculation = self._inoculation(base, dose) if dose else None
        self.source, self.stop_nodes = FullBatch(base, inoculation), base.outer_nodes
        self._predicting = self._with_predictor(base)
        self.backbone, self.work = self._predicting.backbone, work_of(base)
        self._alone = make_problem(
            prepared,
            method.features_network(),
            Fixed(),
            outer_nodes=val,
            weight_decay=method.weight_decay,
            seed=run.seed,
        )
        self.alone = self._alone.backbone
        labelled = (taught.train_mask | taught.val_mask).nonzero().squeeze(-1)
        self.labelled = labelled.to(prepared.device)
        self.folds = fold_nodes(
            data,
            method.label_use,
            method.num_folds,
            run.seed,
            prepared.device,
            method.labels,
        )

    def _inoculation(self, base: NodeClassification, dose: float) -> Inoculation:
        loops = base.backbone.self_loops

        def lay_out(edge_index: Tensor) -> Topology:
            return self._prepared.with_edges(edge_index).topology(self_loops=loops)

        return Inoculation(base, self.structure, lay_out, dose=dose, seed=self.run.seed)

    @cached_property
    def _said_by_features(self) -> Tensor:
        of_folds = self.known_by_features().of_folds
        return _stitched(of_folds, self.folds.outer, self._alone)

    def classes(self) -> Tensor:
        """Class of each node: known, or what features alone say, ``[nodes]``."""
        found = self._said_by_features.argmax(-1)
        found[self.labelled] = self._alone.labels[self.labelled]
        return found

    def shift(self, classes: Tensor) -> Shift:
        """Whether edges far from labels look like those near them."""
        labelled = torch.zeros_like(classes, dtype=torch.bool)
        labelled[self.labelled] = True
        return edge_shift(
            self._prepared.graph,
            self._prepared.features,
            self._said_by_features,
            classes,
            labelled,
            self.run.seed,
        )

    def _problem(
        self,
        structure: Structure,
        nodes: Tensor,
        candidate: Tensor | None = None,
        *,
        inside: bool = False,
        prepared: PreparedGraph | None = None,
    ) -> NodeClassification:
        """Learn on a structure; ``inside``: in the training that is differentiated."""
        method = self.method
        consistent = method.consistent_inside or not inside
        return make_problem(
            prepared or self._prepared,
            method.structure_network() if inside else method.network(),
            structure,
            outer_nodes=nodes,
            weight_decay=method.weight_decay,
            seed=self.run.seed,
            candidate=candidate,
            consistency=method.teaching() if consistent else None,
        )

    def _with_predictor(self, base: NodeClassification) -> NodeClassification:
        """The learned structure, below the network that predicts."""
        if self.method.structure_backbone is None:
            return base
        predictor = self._problem(Fixed(), self._val).backbone
        learning = base.backbone
        for name in ("normalisation", "self_loops"):
            if getattr(predictor, name) is not getattr(learning, name):
                raise InvalidInput(
                    f"structure_backbone={self.method.structure_backbone!r} given with "
                    f"backbone={self.method.backbone!r}, which weighs edges otherwise; "
                    "expected two networks that weigh them alike."
                )
        return replace(base, backbone=predictor)

    def _trained(
        self, problem: NodeClassification, nodes: Tensor, optimizer: Optimizer
    ) -> Tree:
        """Weights to the last epoch: nothing is selected."""
        epochs = self.method.refit_epochs
        (progress,) = train_weights(
            [problem.with_nodes(nodes, nodes)],
            optimizer,
            steps_per_evaluation=epochs,
            max_training_steps=epochs,
            settings=[LoopSettings(1, Patience("last", 1), nodes, "")],
        )
        return progress.best_weights

    def _selected(self, problem: NodeClassification) -> Progress:
        """Weights of the evaluation that is best on validation nodes."""
        epochs = self.method.refit_epochs
        (progress,) = train_weights(
            [problem.with_nodes(self.labelled, self.stop_nodes)],
            self.refit_optimizer,
            steps_per_evaluation=_LOOK_EVERY,
            max_training_steps=epochs,
            settings=[
                LoopSettings(
                    -(-epochs // _LOOK_EVERY),
                    Patience("accuracy", _PATIENCE),
                    self.stop_nodes,
                    "",
                )
            ],
        )
        return progress

    def train_features_only(self, each: Sequence[Tensor]) -> list[Tree]:
        on_cpu = self._alone.labels.device.type == "cpu"

        def trained(nodes: Tensor) -> Tree:
            return self._trained(self._alone, nodes, self.optimizer)

        return shared_out(each, thread_limit() if on_cpu else 1, trained)

    def features_only(self, weights: Tree) -> FeaturesOnly:
        # By torch, as on batches, whose products round otherwise than those of kernels.
        with torch.no_grad():
            predicted = self._alone.logits(weights, {}, None).softmax(-1)
        return lambda problem: predicted

    def train(self, progress: Progress, state_at: StateAt) -> Tree:
        base, outer = self._predicting, progress.best_outer
        with torch.no_grad():
            seen = base.with_state(state_at(base, {}, outer))
            strengths = seen.strengths(outer)
        fixed = self._problem(Fixed(strengths), self.labelled)
        if self.method.labels == "all":
            return self._trained(fixed, self.labelled, self.refit_optimizer)
        return self._selected(fixed).best_weights

    def settled(self, given: PreparedGraph, learned: Outcome) -> Outcome:
        """What was learned, or else the same network on the graph as it was given.

        Where validation labels teach there is nobody left to ask.
        """
        if self.method.labels == "all" or not self.method.fallback:
            return learned
        plain = self._problem(Fixed(), self._val, prepared=given)
        outcome = outcome_of(given, plain, self._selected(plain))
        nodes = self.stop_nodes
        ours, theirs = (
            each.probability.to(nodes.device)[nodes] for each in (learned, outcome)
        )
        if Lead.of(ours, theirs, plain.labels[nodes]).is_sure:
            return learned
        return outcome._replace(progress=learned.progress)


@final
class MiniBatchFit(AmortisedFit):
    """A fit on batches; what each edge has of its own is kept in ``folder``, if any."""

    def __init__(
        self,
        method: Amortised,
        arrays: GraphArrays,
        backbone: Backbone,
        alone: Backbone,
        run: Run,
        folder: Path | None = None,
    ) -> None:
        super().__init__(method, run)
        self.backbone, self.alone = backbone, alone
        assert arrays.train is not None and arrays.val is not None
        train, val = numbers(arrays.train), numbers(arrays.val)
        self.labelled = torch.from_numpy(numbers(arrays.train | arrays.val))
        self.folds = self._divided(arrays)
        with drawn_by(run.seed):
            parts = BatchedAmortisedStrength(
                method.make_structure(), arrays, backbone.num_propagations, run.device
            )
        self.structure = parts.structure
        self._graph = graph = batched_graph(method, arrays, backbone, parts, run)
        self.group = graph.group
        self.source = MiniBatches(
            graph,
            train,
            val,
            method.make_outer_step(),
            folder=folder,
            sharded=method.shard_strengths,
        )
        self.stop_nodes = self.source.stop_nodes
        # On a batch that is the whole graph all rows are at hand, and dropout falls
        # where it falls on a whole graph. Else features alone need no edges.
        self._whole, sampler = _is_whole(graph, self.labelled.numpy()), graph.sampler
        if not self._whole:
            sampler = BoundNeighbors(arrays, (), _ROWS, run.seed)
        self._rows = replace(
            graph,
            sampler=sampler,
            backbone=alone,
            structure=BatchedFixed(),
            batches_per_step=1,
        )

    def _divided(self, arrays: GraphArrays) -> FoldNodes:
        """The labelled nodes by their use: no other node is looked at."""
        labelled, method = self.labelled.numpy(), self.method
        assert arrays.y is not None
        assert arrays.train is not None and arrays.val is not None
        y, train, val = (
            torch.from_numpy(np.asarray(each[labelled]))
            for each in (arrays.y, arrays.train, arrays.val)
        )
        small = Graph(y=y, train_mask=train, val_mask=val)
        device = torch.device("cpu")
        found = fold_nodes(
            small, method.label_use, method.num_folds, self.run.seed, device
        )
        inner, outer = ([self.labelled[nodes] for nodes in each] for each in found)
        return FoldNodes(inner, outer)

    def train_features_only(self, each: Sequence[Tensor]) -> list[Tree]:
        return [self._trained_on_rows(nodes) for nodes in each]

    def _trained_on_rows(self, nodes: Tensor) -> Tree:
        how = self._rows, nodes.numpy(), self.optimizer, self.method.refit_epochs
        at_once = self._whole or len(nodes) <= _ROWS
        return train_on_one_batch(*how) if at_once else train_fresh(*how)

    def features_only(self, weights: Tree) -> FeaturesOnly:
        named = named_weights(self.alone, weights)

        @torch.no_grad()
        def predicted(problem: NodeClassification) -> Tensor:
            inputs = (problem.features, problem.graph.pattern, None, None)
            logits: Tensor = functional_call(self.alone, named, inputs)
            return logits.softmax(-1)

        return predicted

    def train(self, progress: Progress, state_at: StateAt) -> Tree:
        return train_fresh(
            self._graph,
            self.labelled.numpy(),
            self.refit_optimizer,
            self.method.refit_epochs,
            shared=progress.best_outer,
            table=progress.table,
            state_at=state_at,
        )


def _is_whole(graph: BatchedGraph, nodes: Nodes) -> bool:
    """Whether each batch around some nodes is all of the graph."""
    if graph.sampler.batches_in_pass(nodes) > 1:
        return False
    drawn, arrays = graph.sampler.batch(nodes, 0), graph.arrays
    found = drawn.nodes.numel(), drawn.edges.numel()
    return found == (arrays.num_nodes, arrays.num_edges)


def named_weights(backbone: Backbone, weights: Tree) -> Tree:
    """Cut a vector of weights into the trained parameters of a network."""
    named = backbone.named_parameters()
    trained: Tree = {name: weight for name, weight in named if weight.requires_grad}
    return unflatten(weights[FLAT], trained)


def loaded_with(backbone: Backbone, weights: Tree) -> Backbone:
    """The network with other weights."""
    backbone.load_state_dict(named_weights(backbone, weights), strict=False)
    return backbone


@torch.no_grad()
def outcome_of_networks(
    prepared: PreparedGraph, fit: AmortisedFit, learned: Learned
) -> Outcome:
    """The networks that learned the structure, each on the strengths that it sees."""
    networks, outer = learned.networks, learned.progress.best_outer
    assert isinstance(networks.source, FullBatch)
    base = networks.source.base
    members, strengths = [], []
    each = networks.networks(learned.progress.best_weights)
    for network, weights in enumerate(each):
        here = base.with_state(networks.state_at(network)(base, weights, outer))
        strengths.append(here.strengths(outer))
        propagation = Propagation(base.graph.pattern, strengths[-1])
        members.append(Member(propagation, base.named_weights(weights)))
    mean = torch.stack(strengths).mean(0)
    model = fitted_on(prepared, fit.backbone, mean, members=tuple(members))
    return Outcome(model, learned.progress, model.probabilities(prepared.data))


@torch.no_grad()
def refitted_outcome(
    prepared: PreparedGraph,
    candidate: Tensor | None,
    fit: AmortisedFit,
    learned: Learned,
    floor: float,
) -> Outcome:
    """The fresh network, on a graph whose edges the learned function scores.

    What features alone say counts as the ``floor`` says.
    """
    backbone, features, progress = fit.backbone, prepared.features, learned.progress
    topology = prepared.topology(self_loops=backbone.self_loops)
    own = progress.best_outer.get("own")
    of_edges = None if own is None else own.numpy(force=True)
    if progress.table is not None:
        of_edges = whole_column(progress.table, "own")
    structure, alone = fit.method.make_structure(), None
    structure.expect(*fit.structure.given_values)
    structure.restore(
        {**fit.structure.state_dict(), **progress.best_outer}, backbone.normalise
    )
    if learned.features_only is not None:
        alone = loaded_with(fit.alone, learned.features_only)
    first = learned.first and named_weights(backbone, learned.first)
    graph = ChunkedGraph(topology, features, candidate=candidate)
    assert graph.whole is not None and learned.weights is not None
    scored = Scorer(structure, alone, first).strengths(
        graph, backbone, num_classes(prepared.data), own=of_edges
    )
    strengths, weights = scored(graph.whole), scored.weights()
    given = weights if candidate is None else weights[..., ~candidate]
    scorer = Scorer(structure, alone, first, given, floor)
    model = fitted_on(
        prepared, loaded_with(backbone, learned.weights), strengths, scorer=scorer
    )
    logits = backbone(features, topology.pattern, strengths, None)
    return Outcome(model, progress, scorer.grounded(logits, features).softmax(-1))
