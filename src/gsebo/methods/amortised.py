"""Amortised strengths: one learned function scores all edges, also new ones.

Inoculated ones were judged on graphs with false edges, too.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, make_hypergradient, make_optimizer
from gsebo.data.formats.folder import GraphFolder
from gsebo.distributed.group import Group
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.graph import Graph
from gsebo.graph.mapped import ScratchFolder
from gsebo.loader.sampler import Sampler
from gsebo.methods.amortised_fit import (
    AmortisedFit,
    FullBatchFit,
    MiniBatchFit,
    loaded_with,
    named_weights,
    outcome_of_networks,
    refitted_outcome,
)
from gsebo.methods.batched import check_batches, column_on_disk
from gsebo.methods.fitting import (
    NetworkChoices,
    Outcome,
    PreparedGraph,
    fit_each,
    loop_settings,
    make_task,
    over_given_graph,
    work_of,
)
from gsebo.methods.folder_fit import build, learnable
from gsebo.methods.folds import Labels, LabelUse, check_fallback
from gsebo.methods.parameters import (
    CountOrZero,
    EvidenceNames,
    HypergradientName,
    NumFolds,
    OptimizerName,
    Rate,
    SamplerName,
    Samples,
    ShareBelowOne,
    SideWidth,
    Steps,
)
from gsebo.methods.run import Run, threads_for
from gsebo.methods.schedule import TaughtByAllNodes
from gsebo.model.fitted import FittedModel, graph_checksum
from gsebo.model.scorer import Scorer
from gsebo.structure import AmortisedStrength
from gsebo.structure.candidates import candidate_edges
from gsebo.structure.shift import Shift
from gsebo.training import Networks, Progress, train_structure
from gsebo.training.outer_step import OptimizerStep, OuterStep

PredictionKind = Literal["both", "features", "none"]
"""Which predictions a structure compares at both ends of an edge: those from features
alone and the network's, the former, or none."""


def with_candidates(
    prepared: PreparedGraph, count: int
) -> tuple[PreparedGraph, Tensor | None]:
    """Add the nearest neighbors of each node by features; also say which those are.

    Where there are to be none: the graph itself and ``None``.
    """
    if not count:
        return prepared, None
    graph = prepared.graph
    if graph.types is not None:
        raise InvalidInput(
            f"candidates={count} given for a graph with several types or relations, "
            "one of which a new edge would have to be of; expected candidates=0."
        )
    given = graph.edge_index.cpu()
    added = candidate_edges(prepared.features, count, graph)
    ground = prepared.with_edges(torch.cat([given, added], dim=1))
    keys, known = (
        each[0] * graph.num_nodes + each[1] for each in (ground.graph.edge_index, given)
    )
    return ground, ~torch.isin(keys, known).to(prepared.device)


@dataclass(kw_only=True, eq=False, repr=False)
class AmortisedClassifier(TaughtByAllNodes):
    """What all methods share that learn one function of the ends of an edge.

    The network, and how its weights are trained, is said by the parameters of every
    method: see :class:`~gsebo.methods.GraphClassifier`.

    Args:
        inner_steps: Inner steps per outer step (τ).
        outer_lr: Learning rate of the function.
        outer_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        max_outer_steps: Number of outer steps, rounded up to whole rounds of all
            networks; ``history_`` has one record for each round.
        labels: Whose labels teach: ``"all"``, those of training and validation nodes;
            ``"train"``: those of training nodes alone, while those of validation nodes
            stop the last training and decide whether the learned graph is taken or the
            given one, which stays unless it is beaten by more than two standard errors.
        fallback: With ``labels="train"``: whether there is that given graph to fall
            back on, or weights are trained on the learned one alone.
        label_use: ``"folds"``: each labelled node is held out by one of ``num_folds``
            networks; ``"cross"``: one network, all labelled nodes divided anew before
            each outer step; ``"fixed"``: training nodes inside, validation nodes
            outside.
        num_folds: Number of networks with folds.
        inner_share: Share of the labelled nodes that a division trains on.
        scorer_channels: Width of the hidden layer of the function.
        evidence: What the function knows of an edge: ``"all"``, or names separated by
            commas of ``cosine``, ``rarity``, ``target_degree``, ``source_degree``,
            ``common``, ``allocation``, ``edge_weight``, ``edge_attr``; all has the last
            two where the graph has them.
        predictions: Which predictions it compares at both ends: ``"both"`` those from
            features alone and the network's, ``"features"`` the former, ``"none"``.
        renormalise: Normalise strengths anew from the learned weights.
        per_layer: One function for each layer.
        residual: A number of its own for every edge, beside the function.
        shrinkage: Share of those numbers taken off after each outer step.
        scorer_decay: The same for the weights of the function.
        direct_term: Include ∂F/∂φ at fixed weights. The stored evidence for doing so is
            of test figures alone.
        hypergradient: ``"reverse"``, ``"unrolled"``, ``"truncated"``, ``"implicit"``,
            ``"first_order"``, or an engine.
        refit: Train fresh weights on all labelled nodes at the end.
        refit_epochs: For so many passes over the labelled nodes; on batches, of 10
            steps at most. With ``labels="train"`` at most so many.
        refit_lr: Learning rate of the fresh weights; ``None``: ``inner_lr``.
        structure_backbone: Name of the network that the structure is learned with,
            where that is another than the one that predicts; both have to weigh edges
            alike.
        consistent_inside: Let nodes without labels teach, as ``consistency`` says, in
            the training that is differentiated too, not only in those after it.
    """

    uses_edge_attr: ClassVar[bool] = True

    inner_steps: Steps = 20
    outer_lr: Rate = 0.01
    outer_optimizer: OptimizerName = "adam"
    max_outer_steps: Steps = 100
    labels: Labels = "all"
    fallback: bool = True
    label_use: LabelUse = "folds"
    num_folds: NumFolds = 5
    inner_share: ShareBelowOne = 0.7
    scorer_channels: SideWidth = 16
    evidence: EvidenceNames = "all"
    predictions: PredictionKind = "both"
    renormalise: bool = True
    per_layer: bool = False
    residual: bool = True
    shrinkage: ShareBelowOne = 0.02
    scorer_decay: ShareBelowOne = 0.0
    direct_term: bool = True
    hypergradient: HypergradientName | Hypergradient = "reverse"
    refit: bool = True
    refit_epochs: Steps = 400
    refit_lr: Rate | None = None
    structure_backbone: str | None = None
    consistent_inside: bool = False

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=self.direct_term)
        return engine.remembered_steps(self.inner_steps)

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

    @abstractmethod
    def allows_floor(self, floor: float) -> bool:
        """Whether features alone may count so much in a prediction of a fit."""

    def features_network(self) -> NetworkChoices:
        """The network that knows features alone."""
        return NetworkChoices("mlp", self.hidden_channels, 2, self.dropout, None)

    def structure_network(self) -> NetworkChoices:
        """The network that the structure is learned with."""
        if self.structure_backbone is None:
            return self.network()
        own = replace(self.network(), backbone=self.structure_backbone, options=None)
        return own

    def networks(self) -> list[NetworkChoices]:
        """The network, the one that knows features alone, and that of the structure."""
        learning = [] if self.structure_backbone is None else [self.structure_network()]
        return [self.network(), self.features_network(), *learning]

    def _check_parameters(self) -> None:
        check_fallback(self.labels, self.fallback)
        given = self.labels, self.label_use
        if given == ("train", "fixed"):
            raise InvalidInput(
                "label_use='fixed' given with labels='train', where validation labels "
                "teach nothing; expected label_use='folds' or 'cross'."
            )
        if self.structure_backbone is not None and self.per_layer:
            raise InvalidInput(
                f"per_layer=True given with structure_backbone="
                f"{self.structure_backbone!r}; expected one function for all layers, "
                "because two networks need not have as many."
            )
        needed = {
            "labels='train'": self.labels == "train",
            f"structure_backbone={self.structure_backbone!r}": (
                self.structure_backbone is not None
            ),
            f"refit_lr={self.refit_lr!r}": self.refit_lr is not None,
        }
        for words, wanted in needed.items():
            if wanted and not self.refit:
                raise InvalidInput(
                    f"refit=False given with {words}; expected refit=True, because "
                    "what predicts is trained at the end."
                )

    def learn(
        self, problem: Networks, run: Run, stop_nodes: Tensor, group: Group | None
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

    def _outcome(
        self,
        given: PreparedGraph,
        prepared: PreparedGraph,
        candidate: Tensor | None,
        fit: AmortisedFit,
        floor: float = 0.0,
    ) -> Outcome:
        """Run a fit, and lay what it learned with candidates over the given graph."""
        if self.predictions != "none":
            fit.known_by_features()
        with threads_for(fit.work):
            learned = fit.learn()
            if self.refit:
                outcome = refitted_outcome(prepared, candidate, fit, learned, floor)
            else:
                outcome = outcome_of_networks(prepared, fit, learned)
            if candidate is not None:
                outcome = over_given_graph(given, outcome)
            return fit.settled(given, outcome)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Amortised(AmortisedClassifier):
    """Edge strengths by one function of both ends, learned through training.

    What is known of an edge (how alike its nodes are, their degrees and common
    neighbors, how far predictions agree) is turned into its weight by a small network,
    whose parameters follow the same hypergradient as :class:`~gsebo.GSEBO`'s strengths.
    What each edge has of its own beside it is shrunk, and every labelled node is judged
    by a network that never saw it. At the end fresh weights are trained on all of them,
    on the learned graph.

    Args:
        candidates: So many nearest neighbors by features become edges that start near
            zero.
        batch_size: Train on batches of the graph, so large: nodes drawn around for
            neighbors, nodes in all for clusters. ``None``: on the whole graph.
        sampler: ``"neighbor"``, ``"cluster"``, or a sampler.
        batches_per_step: How many batches make one step; processes share them.
        shard_strengths: Give each of several processes what a share of the edges has of
            its own instead of all of it.
    """

    reads_types: ClassVar[bool] = True

    candidates: CountOrZero = 0
    batch_size: Count | None = None
    sampler: SamplerName | Sampler = "neighbor"
    batches_per_step: Samples = 1
    shard_strengths: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_batches(
            self,
            candidates=(self.candidates, 0),
            refit=(self.refit, True),
            labels=(self.labels, "all"),
            structure_backbone=(self.structure_backbone, None),
            consistency=(self.consistency, 0),
        )

    def allows_floor(self, floor: float) -> bool:
        """There is none."""
        return floor == 0

    def train_on_folder(self, folder: GraphFolder, run: Run) -> Outcome:
        """Train on batches of a graph on disk."""
        arrays = learnable(folder)
        backbone, alone = (
            build(network, folder, run.seed, run.device) for network in self.networks()
        )
        files = ScratchFolder()
        fit = MiniBatchFit(self, arrays, backbone, alone, run, files.path)
        learned = fit.learn()
        assert learned.weights is not None
        scorer, table = fit.structure, learned.progress.table
        found = {**scorer.state_dict(), **learned.progress.best_outer}
        scorer.restore(found, backbone.normalise)
        alone_weights, first = learned.features_only, learned.first
        model = FittedModel(
            backbone=loaded_with(backbone, learned.weights),
            own=None if table is None else column_on_disk(table, "own", files),
            files=files,
            graph=graph_checksum(folder),
            num_classes=int(folder.manifest.num_classes or 0),
            num_features=arrays.num_features,
            weighted=arrays.edge_weight is not None,
            scorer=Scorer(
                scorer,
                None if alone_weights is None else loaded_with(alone, alone_weights),
                None if first is None else named_weights(backbone, first),
            ),
        )
        return Outcome(model, learned.progress)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        given = PreparedGraph(data, runs[0].device)
        if not self.refit and given.graph.types is not None:
            raise InvalidInput(
                "refit=False given for a graph with several types or relations, which "
                "networks with graphs of their own do not tell apart; expected "
                "refit=True."
            )
        prepared, candidate = with_candidates(given, self.candidates)

        def fit(run: Run) -> Outcome:
            made = self.make_fit(prepared, candidate, run)
            return self._outcome(given, prepared, candidate, made)

        if self.batch_size is not None:
            # Whoever draws batches has threads of their own for that.
            return [fit(run) for run in runs]
        return fit_each(prepared, self.network(), runs, fit)

    def make_fit(
        self, prepared: PreparedGraph, candidate: Tensor | None, run: Run
    ) -> AmortisedFit:
        """One fit of a graph in memory, whole or on batches."""
        if self.batch_size is None:
            return FullBatchFit(self, prepared, candidate, run)
        arrays = GraphArrays.of(prepared.data)
        tasks = [
            make_task(prepared, network, weight_decay=self.weight_decay, seed=run.seed)
            for network in self.networks()
        ]
        backbone, alone = (task.backbone for task in tasks)
        fit = MiniBatchFit(self, arrays, backbone, alone, run)
        fit.work = work_of(tasks[0])
        return fit


# False edges for each edge of a judging node where nothing looks suspicious, and how
# many more, and how many candidates, for each sure excess of false ones elsewhere.
# Chosen on nodes of no mask: see docs/guides/attacks.md.
_DOSE, _DOSE_PER_EXCESS, _CANDIDATES_PER_EXCESS = 0.5, 15.0, 25.0
_MOST_DOSE, _MOST_CANDIDATES = 4.0, 5
# The part of features alone in a prediction, likewise.
_FLOOR_PER_EXCESS, _MOST_FLOOR = 10.0, 0.5


@final
class Prescription(NamedTuple):
    """What follows from how false edges look, or was given."""

    dose: float
    candidates: int
    floor: float


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Inoculated(AmortisedClassifier):
    """Amortised strengths that have seen false edges, for graphs that may be attacked.

    As :class:`~gsebo.Amortised`, but in every outer step the function is judged on a
    graph that has false edges at the judging nodes. How many depends on evidence: on
    how much more often edges far from labelled nodes look as if drawn by chance than
    edges between labelled nodes. Where many do, nearest neighbors by features stand in,
    and what features alone say of a node has a part in its prediction.
    Weights learn on the given graph alone. How much follows from the evidence was
    chosen on nodes of no mask; ``floor`` was added after test figures had been seen.

    Args:
        dose: False edges for each edge of a judging node, on average; ``None``: as
            many as the evidence says.
        candidates: So many nearest neighbors by features become edges that start near
            zero; ``None``: as many as the evidence says.
        floor: How much what features alone say counts in a prediction, as the power of
            its probabilities beside those of the network; ``None``: as much as the
            evidence says. It needs ``predictions`` and ``refit``.
    """

    dose: Rate | None = None
    candidates: CountOrZero | None = None
    floor: Rate | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.floor and (self.predictions == "none" or not self.refit):
            raise InvalidInput(
                f"floor={self.floor!r} given with predictions={self.predictions!r} and "
                f"refit={self.refit!r}; expected predictions of features and "
                "refit=True, or floor=0."
            )

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        given = PreparedGraph(data, runs[0].device)
        one = partial(self._train_one, given)
        return fit_each(given, self.network(), runs, one)

    def _train_one(self, given: PreparedGraph, run: Run) -> Outcome:
        shift, before = Shift(), None
        given_by_hand = self.dose, self.candidates, self.floor
        if None in given_by_hand and self.predictions != "none":
            before = FullBatchFit(self, given, None, run)
            shift, _ = _looked_at(before)
        chosen = self.prescribed(shift)
        prepared, candidate = with_candidates(given, chosen.candidates)
        fit = FullBatchFit(self, prepared, candidate, run, chosen.dose)
        if before is not None:
            # Whoever knows features alone knows nothing of candidates.
            fit.know(before.known_by_features())
        return self._outcome(given, prepared, candidate, fit, chosen.floor)

    def allows_floor(self, floor: float) -> bool:
        """It is what was given, or else what evidence can lead to."""
        known = self.predictions != "none" and self.refit
        if self.floor is not None:
            return floor == self.floor
        return 0 <= floor <= (_MOST_FLOOR if known else 0)

    def look_at(self, given: PreparedGraph, run: Run) -> tuple[Shift, Tensor]:
        """Whether edges far from labels look false, and each node's likely class."""
        return _looked_at(FullBatchFit(self, given, None, run))

    def prescribed(self, shift: Shift) -> Prescription:
        """What follows from the evidence, where it was not given."""
        # Rounded, so that processors which round otherwise agree.
        sure = round(shift.sure, 2)
        dose, candidates, floor = self.dose, self.candidates, self.floor
        if dose is None:
            dose = min(_DOSE + _DOSE_PER_EXCESS * sure, _MOST_DOSE)
        if candidates is None:
            candidates = min(int(_CANDIDATES_PER_EXCESS * sure), _MOST_CANDIDATES)
        if floor is None:
            floor = min(_FLOOR_PER_EXCESS * sure, _MOST_FLOOR)
        return Prescription(dose, candidates, floor)


def _looked_at(fit: FullBatchFit) -> tuple[Shift, Tensor]:
    fit.known_by_features()
    with threads_for(fit.work):
        classes = fit.classes()
        return fit.shift(classes), classes
