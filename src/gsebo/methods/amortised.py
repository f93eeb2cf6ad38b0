"""Amortised strengths: one learned function scores all edges, also new ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.func import functional_call

from gsebo.bilevel import Hypergradient, Tree, make_hypergradient, make_optimizer
from gsebo.data.formats.folder import GraphFolder
from gsebo.distributed.group import Group
from gsebo.graph import Propagation
from gsebo.graph.graph import Graph
from gsebo.loader.sampler import Sampler
from gsebo.methods.amortised_batched import fit_amortised_on_folder, fit_in_memory
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.batched import check_batches
from gsebo.methods.folder_fit import FolderOutcome
from gsebo.methods.label_parts import (
    LabelUse,
    division_of,
    guesses_without_edges,
    parts_of,
)
from gsebo.methods.outcome import Outcome, told_of
from gsebo.methods.parameters import (
    CountOrZero,
    NumFolds,
    Rate,
    Samples,
    ShareBelowOne,
    SideWidth,
    Steps,
)
from gsebo.methods.plain_training import (
    PlainTraining,
    PredictionKind,
    probabilities,
    refit,
)
from gsebo.methods.prepare import NetworkChoices, PreparedGraph, make_problem
from gsebo.methods.schedule import loop_settings, steps_to_walk_back, work_of
from gsebo.model.extension import AmortisedExtension
from gsebo.model.fitted import FittedModel
from gsebo.nn import Backbone
from gsebo.schema import Count
from gsebo.structure import AmortisedStrength, Predictions
from gsebo.structure.candidates import candidate_edges
from gsebo.structure.evidence import evidence_columns
from gsebo.training import (
    CrossFit,
    Member,
    NodeClassification,
    Progress,
    train_structure,
)
from gsebo.training.cross_fit import seen_state
from gsebo.training.outer_step import OptimizerStep, OuterStep
from gsebo.training.threads import threads_for
from gsebo.training.turns import Learnable


@torch.no_grad()
def fold_outcome(
    ground: PreparedGraph, problem: CrossFit, progress: Progress
) -> Outcome:
    """The networks that learned the structure, each on the strengths that it sees."""
    base, outer = problem.base, progress.best_outer
    members, strengths = [], []
    for network, weights in enumerate(problem.networks(progress.best_weights)):
        here = base.with_state(problem.state(network, weights, outer))
        strengths.append(here.strengths(outer))
        propagation = Propagation(base.graph.pattern, strengths[-1])
        members.append(Member(propagation, base.named_weights(weights)))
    mean = torch.stack(strengths).mean(0)
    model = _fitted(ground, base.backbone, base, mean)
    model = replace(model, members=tuple(members))
    return Outcome(model, progress, model.probabilities(ground.data))


def refitted_outcome(
    ground: PreparedGraph,
    problem: CrossFit,
    progress: Progress,
    *,
    network: NetworkChoices,
    guess_network: NetworkChoices,
    training: PlainTraining,
    predictions: PredictionKind,
) -> Outcome:
    """Fresh weights on the learned structure, from all labelled nodes.

    Args:
        ground: The graph, candidate edges included.
        problem: What the structure was learned with.
        progress: How that went.
        network: Which network.
        guess_network: The one that knows features alone.
        training: How each is trained.
        predictions: At which predictions the structure looks.
    """
    base, outer = problem.base, progress.best_outer
    data = ground.data
    labelled = (data.train_mask | data.val_mask).nonzero().squeeze(-1)
    labelled = labelled.to(ground.device)
    trained: list[NodeClassification] = []

    def state_of(guess: Guessed | None, first: Tree | None) -> Predictions | None:
        if guess is None:
            return None
        if first is None:
            return guess.classes, guess.classes
        return seen_state(base, first, outer, guess.classes)

    def train_guess() -> Guessed:
        own, weights = training.train(ground, guess_network, None, labelled)
        return Guessed(_loaded(own, weights), probabilities(own, weights))

    def train(guess: Guessed | None, first: Tree | None) -> Tree:
        strengths = _strengths(base, outer, state_of(guess, first))
        own, weights = training.train(ground, network, strengths, labelled)
        trained.append(own)
        return weights

    guess, first, weights = refit(predictions, train_guess, train)
    fresh, state = trained[-1], state_of(guess, first)
    strengths = _strengths(base, outer, state)
    model = _fitted(ground, _loaded(fresh, weights), base, strengths)
    extension = AmortisedExtension(
        structure=_learned(base, outer),
        guess=None if guess is None else guess.network,
        first=None if first is None else base.named_weights(first),
        weights=_edge_weights(base, outer, state),
    )
    model = replace(model, extension=extension)
    with torch.no_grad():
        # By the same operations that predict later, not by kernel calls of training.
        logits = fresh.logits(weights, {}, None)
    return Outcome(model, progress, logits.softmax(-1))


class Guessed(NamedTuple):
    """A network that knows features alone, and what it says of every node."""

    network: Backbone
    classes: Tensor


@torch.no_grad()
def _strengths(
    base: NodeClassification, outer: Tree, state: Predictions | None
) -> Tensor:
    return base.with_state(state).strengths(outer)


@torch.no_grad()
def _edge_weights(
    base: NodeClassification, outer: Tree, state: Predictions | None
) -> Tensor:
    """Weights of the user's edges, before normalisation."""
    structure = base.structure
    assert isinstance(structure, AmortisedStrength)
    weights: Tensor = functional_call(
        structure, outer, (base.graph, state), {"normalised": False}
    )
    candidate = structure.candidate
    return weights if candidate is None else weights[..., ~candidate]


@torch.no_grad()
def _learned(base: NodeClassification, outer: Tree) -> AmortisedStrength:
    """The structure with what was learned as its own parameters."""
    structure = base.structure
    assert isinstance(structure, AmortisedStrength)
    for name, parameter in structure.named_parameters():
        parameter.copy_(outer[name])
    structure.forget()
    return structure


@torch.no_grad()
def _loaded(problem: NodeClassification, weights: Tree) -> Backbone:
    """The network with its trained weights."""
    parameters = dict(problem.backbone.named_parameters())
    for name, weight in problem.named_weights(weights).items():
        parameters[name].copy_(weight)
    return problem.backbone


def _fitted(
    ground: PreparedGraph,
    backbone: Backbone,
    base: NodeClassification,
    strengths: Tensor,
) -> FittedModel:
    return FittedModel(
        backbone=backbone,
        graph=ground.graph,
        strengths=strengths,
        start=backbone.initial_strength(base.graph.pattern),
        learned=True,
        num_features=ground.data.x.shape[1],
    )


def with_candidates(
    prepared: PreparedGraph, count: int
) -> tuple[PreparedGraph, Tensor | None]:
    """Add the nearest neighbours of each node by features.

    Args:
        prepared: The graph.
        count: Neighbours of each node.

    Returns:
        The graph with candidate edges, and which edges those are; itself and ``None``
        where there are to be none.
    """
    if not count:
        return prepared, None
    graph = prepared.graph
    given = graph.edge_index.cpu()
    added = candidate_edges(prepared.features, count, graph)
    ground = prepared.with_edges(torch.cat([given, added], dim=1))
    keys, known = (
        each[0] * graph.num_nodes + each[1] for each in (ground.graph.edge_index, given)
    )
    return ground, ~torch.isin(keys, known).to(prepared.device)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Amortised(GraphClassifier):
    """Edge strengths by one function of both ends, learned through training.

    What is known of an edge (how alike its nodes are, their degrees and common
    neighbours, how far predictions agree) is turned into its weight by a small network,
    whose parameters follow the same hypergradient as :class:`~gsebo.GSEBO`'s strengths.
    What each edge has of its own beside it is shrunk, and every labelled node is judged
    by a network that never saw it. At the end fresh weights are trained on all of them,
    on the learned graph.

    The network, and how its weights are trained, is said by the parameters of every
    method: see :class:`~gsebo.methods.GraphClassifier`.

    Args:
        inner_steps: Inner steps per outer step (τ).
        outer_lr: Learning rate of the function.
        outer_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        max_outer_steps: Number of outer steps, rounded up to whole rounds of all
            networks; ``history_`` has one record for each round.
        label_use: ``"folds"``: each labelled node is held out by one of ``num_folds``
            networks; ``"cross"``: one network, all labelled nodes divided anew before
            each outer step; ``"fixed"``: training nodes inside, validation nodes
            outside.
        num_folds: Number of networks with folds.
        inner_share: Share of the labelled nodes that a division trains on.
        scorer_channels: Width of the hidden layer of the function.
        evidence: What the function knows of an edge: ``"all"``, or names separated by
            commas of ``cosine``, ``rarity``, ``target_degree``, ``source_degree``,
            ``common``, ``allocation``.
        predictions: Which predictions it compares at both ends: ``"both"`` those from
            features alone and the network's, ``"features"`` the former, ``"none"``.
        renormalise: Normalise strengths anew from the learned weights.
        per_layer: One function for each layer.
        residual: A number of its own for every edge, beside the function.
        shrinkage: Share of those numbers taken off after each outer step.
        scorer_decay: The same for the weights of the function.
        candidates: So many nearest neighbours by features become edges that start near
            zero.
        direct_term: Include ∂F/∂φ at fixed weights.
        hypergradient: ``"reverse"``, ``"unrolled"``, ``"truncated"``, ``"implicit"``,
            ``"first_order"``, or an engine.
        refit: Train fresh weights on all labelled nodes at the end.
        refit_epochs: For so many passes over the labelled nodes; on batches, of 10
            steps at most.
        batch_size: Train on batches of the graph, so large: nodes drawn around for
            neighbours, nodes in all for partitions. ``None``: on the whole graph.
        sampler: ``"neighbour"``, ``"partition"``, or a sampler.
        batches_per_step: How many batches make one step; processes share them.
        shard_strengths: Give each of several processes what a share of the edges has of
            its own instead of all of it.
    """

    inner_steps: Steps = 20
    outer_lr: Rate = 0.01
    outer_optimizer: str = "adam"
    max_outer_steps: Steps = 100
    label_use: LabelUse = "folds"
    num_folds: NumFolds = 5
    inner_share: ShareBelowOne = 0.7
    scorer_channels: SideWidth = 16
    evidence: str = "all"
    predictions: PredictionKind = "both"
    renormalise: bool = True
    per_layer: bool = False
    residual: bool = True
    shrinkage: ShareBelowOne = 0.02
    scorer_decay: ShareBelowOne = 0.0
    candidates: CountOrZero = 0
    direct_term: bool = True
    hypergradient: str | Hypergradient = "reverse"
    refit: bool = True
    refit_epochs: Steps = 400
    batch_size: Count | None = None
    sampler: str | Sampler = "neighbour"
    batches_per_step: Samples = 1
    shard_strengths: bool = False

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=self.direct_term)
        return steps_to_walk_back(engine, self.inner_steps)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        evidence_columns(self.evidence)
        make_optimizer(self.outer_optimizer, self.outer_lr)
        make_hypergradient(self.hypergradient, direct_term=self.direct_term)
        check_batches(self, candidates=(self.candidates, 0), refit=(self.refit, True))

    def make_structure(self) -> AmortisedStrength:
        """The function that scores edges, before it is laid over a graph."""
        return AmortisedStrength(
            scorer_channels=self.scorer_channels,
            per_layer=self.per_layer,
            residual=self.residual,
            shrinkage=self.shrinkage,
            scorer_decay=self.scorer_decay,
            evidence=self.evidence,
            renormalise=self.renormalise,
        )

    def guess_network(self) -> NetworkChoices:
        """The network that knows features alone."""
        return NetworkChoices("mlp", self.hidden_channels, 2, self.dropout, None)

    def train_on_folder(self, folder: GraphFolder, run: Run) -> FolderOutcome:
        """Train on batches of a graph on disk."""
        return fit_amortised_on_folder(self, folder, run)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        if self.batch_size is not None:
            return [fit_in_memory(self, prepared, run) for run in runs]
        ground, candidate = with_candidates(prepared, self.candidates)
        return [self._train_one(prepared, ground, candidate, run) for run in runs]

    def _train_one(
        self,
        prepared: PreparedGraph,
        ground: PreparedGraph,
        candidate: Tensor | None,
        run: Run,
    ) -> Outcome:
        training = PlainTraining(
            make_optimizer(self.inner_optimizer, self.inner_lr),
            self.refit_epochs,
            self.weight_decay,
            run.seed,
        )
        base = self._base(ground, candidate, run.seed)
        with threads_for(work_of(base)):
            problem = self._problem(prepared, base, training, run.seed)
            progress = self.learn(problem, run, base.outer_nodes, None)
            if self.refit:
                outcome = refitted_outcome(
                    ground,
                    problem,
                    progress,
                    network=self.network(),
                    guess_network=self.guess_network(),
                    training=training,
                    predictions=self.predictions,
                )
            else:
                outcome = fold_outcome(ground, problem, progress)
        return outcome if ground is prepared else told_of(prepared, outcome)

    def _base(
        self, ground: PreparedGraph, candidate: Tensor | None, seed: int
    ) -> NodeClassification:
        val = ground.data.val_mask.nonzero().squeeze(-1)
        return make_problem(
            ground,
            self.network(),
            self.make_structure(),
            outer_nodes=val,
            weight_decay=self.weight_decay,
            seed=seed,
            candidate=candidate,
        )

    def _problem(
        self,
        prepared: PreparedGraph,
        base: NodeClassification,
        training: PlainTraining,
        seed: int,
    ) -> CrossFit:
        data, device, use = prepared.data, prepared.device, self.label_use
        parts = parts_of(data, use, self.num_folds, seed, device)
        guesses = None
        if self.predictions != "none":
            guesses = guesses_without_edges(
                prepared, parts, use, self.guess_network(), training
            )
        return CrossFit(
            base,
            division_of(parts, use, self.inner_share, seed),
            guesses,
            own_predictions=self.predictions == "both",
        )

    def learn(
        self, problem: Learnable, run: Run, stop_nodes: Tensor, group: Group | None
    ) -> Progress:
        """Learn the function, wherever the losses come from."""
        rounds = -(-self.max_outer_steps // problem.num_networks)
        settings = loop_settings(
            run,
            stop_nodes,
            max_steps=rounds,
            patience=rounds,
            select_by="last",
            group=group,
        )
        (progress,) = train_structure(
            [problem],
            make_hypergradient(self.hypergradient, direct_term=self.direct_term),
            make_optimizer(self.inner_optimizer, self.inner_lr),
            self.make_outer_step(),
            inner_steps=self.inner_steps,
            settings=[settings],
            judged="after",
        )
        return progress

    def make_outer_step(self) -> OuterStep:
        """Return what moves the function."""
        return OptimizerStep(make_optimizer(self.outer_optimizer, self.outer_lr))
