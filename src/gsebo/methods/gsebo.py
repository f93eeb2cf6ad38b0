"""GSEBO: graph structure learning with bi-level optimization."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, make_hypergradient, make_optimizer
from gsebo.data.formats.folder import GraphFolder
from gsebo.distributed.group import Group
from gsebo.distributed.tables import EntryTable
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.graph import Graph
from gsebo.graph.mapped import ScratchFolder
from gsebo.loader.sampler import Sampler
from gsebo.methods.amortised_fit import named_weights
from gsebo.methods.batched import (
    batched_graph,
    check_batches,
    column_on_disk,
    numbers,
    whole_column,
)
from gsebo.methods.fitting import (
    Outcome,
    PreparedGraph,
    StopOn,
    loop_settings,
    make_problem,
    outcome_of,
    outcomes_of,
    outer_and_stopping_nodes,
    work_of,
)
from gsebo.methods.folder_fit import build, learnable
from gsebo.methods.folds import (
    Labels,
    Lead,
    check_fallback,
    stratified_folds,
    taught_labels,
)
from gsebo.methods.parameters import (
    HypergradientName,
    OptimizerName,
    Rate,
    SamplerName,
    Samples,
    ShareBelowOne,
    Steps,
)
from gsebo.methods.run import Run, threads_for
from gsebo.methods.schedule import (
    Schedule,
    TaughtByAllNodes,
    train_on_fixed_structure,
)
from gsebo.model.fitted import FittedModel, graph_checksum
from gsebo.nn import Backbone
from gsebo.structure import Structure, make_structure
from gsebo.structure.edge_strength import BatchedEdgeStrength, InitialStrength
from gsebo.training import (
    Folds,
    LoopSettings,
    Networks,
    NodeClassification,
    Progress,
    train_structure,
)
from gsebo.training.batches import MiniBatches
from gsebo.training.history import SelectBy
from gsebo.training.outer_step import (
    OptimizerStep,
    OuterStep,
    OuterStepName,
    TrustRegion,
)
from gsebo.training.problem import Reduction
from gsebo.training.trainer import against_given
from gsebo.training.turns import Source

# Of which the training nodes are so many, where only their labels teach: one of them
# serves the outer loss.
_PARTS = 3


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GSEBO(TaughtByAllNodes):
    """Edge strengths from the derivative of validation loss through training.

    "Graph Structure Learning with Bi-level Optimization". Every ``inner_steps`` steps
    of training, the summed validation loss is differentiated through those steps, and
    the strength of every edge takes a step against that hypergradient.

    The network, and how its weights are trained, is said by the parameters of every
    method: see :class:`~gsebo.methods.GraphClassifier`.

    Args:
        structure: What the strength of an edge is: name, class or instance.
        inner_steps: Inner steps per outer step (τ).
        inner_reduction: The training loss is the ``"mean"`` over the training nodes or,
            as the paper prints it, their ``"sum"``, beside which ``weight_decay``
            counts the less, the more training nodes there are.
        outer_step: How strengths move: ``"trust"``: by relative steps that are limited,
            undone where they did harm, and given up for the graph as it is where that
            is better on the nodes that decide; ``"paper"``: by ``outer_lr`` times the
            gradient of a summed loss, whatever comes of it.
        trust_radius: How far a ``"trust"`` step may go: root mean square of the
            relative changes, and the share of the outer loss that it may promise.
        outer_lr: Learning rate of the strengths (η_o), for ``"paper"``.
        outer_optimizer: ``"sgd"``, ``"momentum"`` or ``"adam"``, for ``"paper"``.
        max_outer_steps: Number of outer steps at most.
        patience: Outer steps without a better one before stopping.
        direct_term: Include ∂F/∂Z at fixed weights, which the paper's algorithm leaves
            out: with it, edges memorise the labels of their validation nodes.
        per_layer: One set of strengths for each layer instead of a shared one.
        tied: Let the two directions of an edge change by the same amount.
        learn_self_loops: Learn the strengths of the self-loops too.
        initial_strength: Where they begin: ``"vanilla"`` at the network's own
            propagation, ``"uniform"`` at its mean, ``"ones"``, or ``"random"``.
        hypergradient: ``"reverse"``, ``"unrolled"``, ``"truncated"``, ``"implicit"``,
            ``"first_order"``, or an engine.
        labels: Whose labels teach: ``"all"``, those of training and validation nodes;
            ``"train"``: those of training nodes alone, a third of which serve the outer
            loss. Validation nodes stop and choose; at the end fresh weights are trained
            on all training nodes, on the learned graph or, where that is not better
            by more than two standard errors, on the given one.
        fallback: With ``labels="train"``: whether there is that given graph to fall
            back on, or weights are trained on the learned one alone.
        stop_on: ``"val"``: all validation nodes serve the outer loss and decide when to
            stop; ``"holdout"``: a random half each.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``
            (``"first_accuracy"``: of equal ones the first), ``"balanced_accuracy"``,
            ``"f1_macro"``, ``"roc_auc"`` or ``"neg_log_loss"``, or the ``"last"``.
        batch_size: Train on batches of the graph, so large: nodes drawn around for
            neighbors, nodes in all for clusters. ``None``: on the whole graph.
        sampler: ``"neighbor"``: some neighbors of the nodes drawn around, and theirs;
            ``"cluster"``: clusters of the graph; or a sampler.
        batches_per_step: How many batches make one step; processes share them.
        shard_strengths: Give each of several processes the strengths of a share of the
            edges instead of all of them.
    """

    reads_types: ClassVar[bool] = True

    structure: str | type | Structure = field(default="edge", kw_only=False)
    inner_steps: Steps = 10
    inner_reduction: Reduction = "mean"
    outer_step: OuterStepName = "trust"
    trust_radius: ShareBelowOne = 0.03
    outer_lr: Rate = 0.01
    outer_optimizer: OptimizerName = "sgd"
    max_outer_steps: Steps = 100
    patience: Count = 20
    direct_term: bool = False
    per_layer: bool = False
    tied: bool = False
    learn_self_loops: bool = True
    initial_strength: InitialStrength = "vanilla"
    hypergradient: HypergradientName | Hypergradient = "reverse"
    labels: Labels = "all"
    fallback: bool = True
    stop_on: StopOn = "val"
    select_by: SelectBy = "loss"
    batch_size: Count | None = None
    sampler: SamplerName | Sampler = "neighbor"
    batches_per_step: Samples = 1
    shard_strengths: bool = False

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=self.direct_term)
        return engine.remembered_steps(self.inner_steps)

    def _check_parameters(self) -> None:
        self._refuse_unused()
        check_fallback(self.labels, self.fallback)
        check_batches(
            self,
            structure=(self.structure, "edge"),
            tied=(self.tied, False),
            initial_strength=(self.initial_strength, "vanilla"),
            inner_reduction=(self.inner_reduction, "mean"),
            labels=(self.labels, "all"),
            consistency=(self.consistency, 0),
        )
        if self.labels == "train" and self.stop_on == "holdout":
            raise InvalidInput(
                "stop_on='holdout' given with labels='train', where validation nodes "
                "serve no outer loss; expected stop_on='val'."
            )

    def _refuse_unused(self) -> None:
        """Raise for a setting that the chosen outer step would not look at."""
        other = "paper" if self.outer_step == "trust" else "trust"
        unused = {"trust": ("outer_lr", "outer_optimizer"), "paper": ("trust_radius",)}
        for name in unused[self.outer_step]:
            given = getattr(self, name)
            if given != getattr(GSEBO, name):
                raise InvalidInput(
                    f"{name}={given!r} given with outer_step={self.outer_step!r}, "
                    f"which does not use it; expected outer_step={other!r}."
                )

    def make_outer_step(self) -> OuterStep:
        """Return what moves the strengths."""
        if self.outer_step == "trust":
            return TrustRegion(self.trust_radius, self.inner_steps)
        return OptimizerStep(make_optimizer(self.outer_optimizer, self.outer_lr))

    def make_problem(self, prepared: PreparedGraph, seed: int) -> NodeClassification:
        """Return the bilevel problem that :meth:`fit` solves for one seed."""
        outer_nodes, _ = outer_and_stopping_nodes(prepared.data, self.stop_on, seed)
        return make_problem(
            prepared,
            self.network(),
            make_structure(
                self.structure,
                per_layer=self.per_layer,
                tied=self.tied,
                learn_self_loops=self.learn_self_loops,
                initial_strength=self.initial_strength,
            ),
            outer_nodes=outer_nodes,
            weight_decay=self.weight_decay,
            seed=seed,
            inner_reduction=self.inner_reduction,
            consistency=self.teaching(),
        )

    def train_on_folder(self, folder: GraphFolder, run: Run) -> Outcome:
        """Train on batches of a graph on disk."""
        arrays = learnable(folder)
        backbone = build(self.network(), folder, run.seed, run.device)
        files = ScratchFolder()
        progress = self._learn_on_batches(arrays, backbone, run, files.path)
        weights = named_weights(backbone, progress.best_weights)
        backbone.load_state_dict(weights, strict=False)
        model = FittedModel(
            backbone=backbone,
            own=column_on_disk(_best(progress), "change", files),
            graph=graph_checksum(folder),
            num_classes=int(folder.manifest.num_classes or 0),
            num_features=arrays.num_features,
            weighted=arrays.edge_weight is not None,
            files=files,
        )
        return Outcome(model, progress)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        if self.batch_size is not None:
            return [self._train_on_batches(prepared, run) for run in runs]
        if self.labels == "train":
            return [self._train_on_few_labels(prepared, run) for run in runs]
        problems = [self.make_problem(prepared, run.seed) for run in runs]
        settings = [
            self.loop_settings(
                run, outer_and_stopping_nodes(data, self.stop_on, run.seed)[1]
            )
            for run in runs
        ]
        with threads_for(work_of(problems[0]), len(problems)):
            progresses = self.learn(problems, settings)
        return outcomes_of(prepared, problems, progresses)

    def _train_on_few_labels(self, prepared: PreparedGraph, run: Run) -> Outcome:
        """Learn strengths from a part of the training nodes, then weights from all."""
        data, val = prepared.data, prepared.data.val_mask.nonzero().squeeze(-1)
        folds = stratified_folds(taught_labels(data, "train"), _PARTS, run.seed)
        if not folds:
            raise InvalidInput(
                "labels='train' given where no class has two training nodes; expected "
                "at least one such class, or labels='all'."
            )
        inner = torch.cat([folds[0].train, folds[0].val]).sort().values.to(run.device)
        outer = folds[0].held_out.to(run.device)
        problem = self.make_problem(prepared, run.seed).with_nodes(inner, outer)
        learning = run.stage(1)
        with threads_for(work_of(problem)):
            (progress,) = self.learn([problem], [self.loop_settings(learning, val)])
        schedule = self._final_schedule()
        with torch.no_grad():
            strengths = problem.strengths(progress.best_outer)
        graphs = [(2, strengths), (3, None)] if self.fallback else [(2, strengths)]
        outcomes = [
            train_on_fixed_structure(
                data, [run.stage(stage)], self.network(), schedule, strengths=each
            )[0]
            for stage, each in graphs
        ]
        if not self.fallback:
            return outcomes[0]._replace(progress=progress)
        labels = prepared.labels[val.to(run.device)]
        learned, given = (
            each.probability.to(run.device)[val].log() for each in outcomes
        )
        chosen = outcomes[0 if Lead.of(learned, given, labels).is_sure else 1]
        return chosen._replace(progress=progress)

    def _final_schedule(self) -> Schedule:
        """As long, and stopped in the same way, as what learned the strengths."""
        return Schedule(
            weight_decay=self.weight_decay,
            optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
            steps_per_evaluation=self.inner_steps,
            max_training_steps=self.inner_steps * self.max_outer_steps,
            patience=self.patience,
            select_by=self.select_by,
            inner_reduction=self.inner_reduction,
            consistency=self.teaching(),
        )

    def _train_on_batches(self, prepared: PreparedGraph, run: Run) -> Outcome:
        """Train on batches of a graph in memory, where all strengths have room."""
        whole = self.make_problem(prepared, run.seed)
        arrays = GraphArrays.of(prepared.data)
        with threads_for(work_of(whole)):
            progress = self._learn_on_batches(arrays, whole.backbone, run)
        column = torch.from_numpy(whole_column(_best(progress), "change"))
        best = {"change": column.to(run.device)}
        return outcome_of(prepared, whole, replace(progress, best_outer=best))

    def _learn_on_batches(
        self,
        arrays: GraphArrays,
        backbone: Backbone,
        run: Run,
        folder: Path | None = None,
    ) -> Progress:
        layers = backbone.num_propagations if self.per_layer else None
        loops = self.learn_self_loops and backbone.self_loops
        structure = BatchedEdgeStrength(layers=layers, learn_self_loops=loops)
        graph = batched_graph(self, arrays, backbone, structure, run)
        assert arrays.train is not None and arrays.val is not None
        masks = Graph(val_mask=torch.from_numpy(np.array(arrays.val)))
        outer, stop = outer_and_stopping_nodes(masks, self.stop_on, run.seed)
        train = numbers(arrays.train)
        source = MiniBatches(
            graph,
            train,
            stop.numpy(),
            self.make_outer_step(),
            folder=folder,
            sharded=self.shard_strengths,
        )
        networks = Networks(source, Folds([torch.from_numpy(train)], [outer]))
        settings = self.loop_settings(run, source.stop_nodes, graph.group)
        (progress,) = self.learn([networks], [settings])
        return progress

    def loop_settings(
        self, run: Run, stop_nodes: Tensor, group: Group | None = None
    ) -> LoopSettings:
        """When the parameters say to stop, and what to keep."""
        return loop_settings(
            run,
            stop_nodes,
            max_steps=self.max_outer_steps,
            patience=self.patience,
            select_by=self.select_by,
            group=group,
        )

    def learn(
        self, problems: Sequence[Source], settings: Sequence[LoopSettings]
    ) -> list[Progress]:
        """Learn weights and strengths, wherever the losses come from."""
        optimizer = make_optimizer(self.inner_optimizer, self.inner_lr)
        learned = train_structure(
            problems,
            make_hypergradient(self.hypergradient, direct_term=self.direct_term),
            optimizer,
            self.make_outer_step(),
            inner_steps=self.inner_steps,
            settings=settings,
        )
        if self.outer_step == "paper":
            return learned
        return against_given(
            problems,
            optimizer,
            learned,
            inner_steps=self.inner_steps,
            settings=settings,
        )


def _best(progress: Progress) -> EntryTable:
    """The strengths of the best step."""
    table = progress.best_table or progress.table
    assert table is not None
    return table
