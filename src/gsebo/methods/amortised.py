"""Amortised strengths: one learned function scores all edges, also new ones."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, final, get_args

from torch import Tensor, nn
from torch_geometric.data import Data

from gsebo.bilevel import Hypergradient, make_hypergradient, make_optimizer
from gsebo.data.folder import GraphFolder
from gsebo.errors import InvalidInput
from gsebo.methods.amortised_batched_outcome import fit_in_memory, fit_on_folder
from gsebo.methods.amortised_outcome import fold_outcome, refitted_outcome
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.batched import check_batches
from gsebo.methods.candidate_ground import with_candidates
from gsebo.methods.folder_fit import FolderOutcome
from gsebo.methods.label_parts import (
    LabelUse,
    division_of,
    guesses_without_edges,
    parts_of,
)
from gsebo.methods.outcome import Outcome, told_of
from gsebo.methods.parameters import (
    require_choice,
    require_count,
    require_count_or_zero,
    require_flag,
    require_not_negative,
    require_share,
)
from gsebo.methods.plain_training import PlainTraining
from gsebo.methods.prepare import NetworkChoices, PreparedGraph, make_problem
from gsebo.methods.schedule import loop_settings, steps_to_walk_back, work_of
from gsebo.structure import AmortisedStrength
from gsebo.structure.evidence import evidence_columns
from gsebo.training import (
    CrossFit,
    NodeClassification,
    Progress,
    train_cross_fitted,
)
from gsebo.training.batches.sampler import Sampler
from gsebo.training.threads import threads_for

Predictions = Literal["both", "features", "none"]


@final
@dataclass(eq=False, repr=False)
class Amortised(GraphClassifier):
    """Edge strengths by one function of both ends, learned through training.

    What is known of an edge (how alike its nodes are, their degrees and common
    neighbours, how far predictions agree) is turned into its weight by a small network,
    whose parameters follow the same hypergradient as :class:`~gsebo.GSEBO`'s strengths.
    What each edge has of its own beside it is shrunk, and every labelled node is judged
    by a network that never saw it. At the end fresh weights are trained on all of them,
    on the learned graph.

    Args:
        backbone: Name, class or instance of a backbone or of a PyG model.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Rate of dropout.
        inner_steps: Inner steps per outer step (τ).
        inner_lr: Learning rate of the weights.
        inner_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        weight_decay: λ of the penalty λ/2 ‖W‖².
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
        backbone_options: Further arguments of the backbone, such as ``heads``.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed; ``None`` draws one.
    """

    backbone: str | type | nn.Module = "gcn"
    _: KW_ONLY
    hidden_channels: int = 16
    num_layers: int = 2
    dropout: float = 0.5
    inner_steps: int = 20
    inner_lr: float = 0.01
    inner_optimizer: str = "adam"
    weight_decay: float = 5e-4
    outer_lr: float = 0.01
    outer_optimizer: str = "adam"
    max_outer_steps: int = 100
    label_use: LabelUse = "folds"
    num_folds: int = 5
    inner_share: float = 0.7
    scorer_channels: int = 16
    evidence: str = "all"
    predictions: Predictions = "both"
    renormalise: bool = True
    per_layer: bool = False
    residual: bool = True
    shrinkage: float = 0.02
    scorer_decay: float = 0.0
    candidates: int = 0
    direct_term: bool = True
    hypergradient: str | Hypergradient = "reverse"
    refit: bool = True
    refit_epochs: int = 400
    batch_size: int | None = None
    sampler: str | Sampler = "neighbour"
    batches_per_step: int = 1
    shard_strengths: bool = False
    backbone_options: dict[str, Any] | None = None
    device: str = "auto"
    random_state: int | None = None

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        engine = make_hypergradient(self.hypergradient, direct_term=self.direct_term)
        return steps_to_walk_back(engine, self.inner_steps)

    def _check_parameters(self) -> None:
        require_count(
            inner_steps=self.inner_steps,
            max_outer_steps=self.max_outer_steps,
            num_folds=self.num_folds,
            scorer_channels=self.scorer_channels,
            refit_epochs=self.refit_epochs,
        )
        require_count_or_zero(candidates=self.candidates)
        if self.num_folds < 2:
            raise InvalidInput(
                f"num_folds={self.num_folds!r} given; expected an integer >= 2."
            )
        require_not_negative(
            inner_lr=self.inner_lr,
            outer_lr=self.outer_lr,
            weight_decay=self.weight_decay,
        )
        require_share(
            inner_share=self.inner_share,
            shrinkage=self.shrinkage,
            scorer_decay=self.scorer_decay,
        )
        require_flag(
            renormalise=self.renormalise,
            per_layer=self.per_layer,
            residual=self.residual,
            direct_term=self.direct_term,
            refit=self.refit,
        )
        require_choice("label_use", self.label_use, get_args(LabelUse))
        require_choice("predictions", self.predictions, get_args(Predictions))
        evidence_columns(self.evidence)
        make_optimizer(self.inner_optimizer, self.inner_lr)
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
        return fit_on_folder(self, folder, run)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
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
            progress = self._learn(problem, run)
            if self.refit:
                outcome = refitted_outcome(
                    ground,
                    problem,
                    progress,
                    network=self.network(),
                    guess_network=self.guess_network(),
                    training=training,
                    guessed=self.predictions != "none",
                    own_predictions=self.predictions == "both",
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

    def _learn(self, problem: CrossFit, run: Run) -> Progress:
        rounds = -(-self.max_outer_steps // problem.num_networks)
        settings = loop_settings(
            run,
            problem.base.outer_nodes,
            max_steps=rounds,
            patience=rounds,
            select_by="last",
        )
        (progress,) = train_cross_fitted(
            [problem],
            make_hypergradient(self.hypergradient, direct_term=self.direct_term),
            make_optimizer(self.inner_optimizer, self.inner_lr),
            make_optimizer(self.outer_optimizer, self.outer_lr),
            inner_steps=self.inner_steps,
            settings=[settings],
        )
        return progress
