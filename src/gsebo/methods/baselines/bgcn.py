"""BGCN: graphs drawn from a block model take the place of the observed one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.graph import Propagation, Topology
from gsebo.graph.graph import Graph
from gsebo.methods.base import Run
from gsebo.methods.baselines.block_model import BlockFit, Blocks, sample_links
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import ShareBelowOne, Steps
from gsebo.methods.schedule import EpochClassifier
from gsebo.schema import Count
from gsebo.sparse import Noise
from gsebo.training import JointProblem, Member, Task
from gsebo.training.history import SelectBy
from gsebo.training.tape_derivatives import FLAT

# The first fit takes large steps, the others begin as if far advanced.
_RANDOM_SCALE = 0.1
_REFIT_FIRST = 10_000


@final
@dataclass(kw_only=True, eq=False, repr=False)
class BGCN(EpochClassifier):
    """A GCN on graphs drawn from a block model (Zhang et al., AAAI 2019).

    After some epochs on the given graph, a mixed-membership block model is fitted to
    it, beginning from the classes that the GCN predicts. From then on every epoch draws
    a graph from the model and trains on that alone; now and then the model is fitted
    again. Predictions are averaged over the last epochs, each with its own weights and
    graph. The direction of edges does not count for the block model. Validation nodes
    are only looked at.

    Args:
        warmup_epochs: Epochs on the given graph.
        refit_every: Epochs between two fits of the block model.
        average_after: Epochs after which predictions are averaged.
        random_iterations: Steps of the first fit, which begins at random and only
            says how large the parameters are.
        refit_iterations: Steps of each fit that begins from predicted classes.
        batch_nodes: Nodes in a batch of such a step.
        nonlink_share: Share of the pairs without an edge that a step samples for the
            densities of the blocks.
        delta: Probability of an edge between blocks.
        compat: Weight decay on the first layer alone, as in the authors' code.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    max_epochs: Steps = 300
    select_by: SelectBy = "last"
    warmup_epochs: Steps = 200
    refit_every: Steps = 20
    average_after: Steps = 240
    random_iterations: Steps = 1000
    refit_iterations: Steps = 200
    batch_nodes: Count = 500
    nonlink_share: ShareBelowOne = 0.01
    delta: ShareBelowOne = 1e-4
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.warmup_epochs <= self.average_after < self.max_epochs:
            raise InvalidInput(
                f"warmup_epochs={self.warmup_epochs}, average_after="
                f"{self.average_after} and max_epochs={self.max_epochs} given; "
                "expected warmup_epochs <= average_after < max_epochs."
            )

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        plan = BlockPlan(
            warmup=self.warmup_epochs,
            refit_every=self.refit_every,
            average_after=self.average_after,
            random_iterations=self.random_iterations,
            refit_iterations=self.refit_iterations,
            last=self.max_epochs,
        )

        def problem(task: Task, run: Run) -> BGCNProblem:
            fit = BlockFit(
                task.graph,
                delta=self.delta,
                batch_nodes=self.batch_nodes,
                nonlink_share=self.nonlink_share,
                device=task.device,
            )
            return BGCNProblem(task, fit, plan, first_layer_decay=self.compat)

        return self.train_jointly(data, runs, problem)


class BlockPlan(NamedTuple):
    """When the block model is fitted, and for how long.

    Attributes:
        warmup: Number of steps before the first fit.
        refit_every: Steps from one fit to the next.
        average_after: Number of steps before predictions are averaged.
        random_iterations: Of the first fit, from random parameters.
        refit_iterations: Of every fit from predicted classes.
        last: Number of all steps; after it no fit would be of use.
    """

    warmup: int
    refit_every: int
    average_after: int
    random_iterations: int
    refit_iterations: int
    last: int

    def fits_after(self, step: int) -> bool:
        """Whether the block model is fitted after so many steps."""
        since = step - self.warmup
        return since >= 0 and since % self.refit_every == 0 and step < self.last

    def latest_fit(self, step: int) -> int:
        """Number of the fit that a step after warm-up draws its graph from."""
        return (step - self.warmup) // self.refit_every


@final
class BGCNProblem(JointProblem):
    """Training loss on the given graph at first, then on drawn ones.

    What is remembered: the parameters of the block model, the hard blocks and densities
    of every fit, and of the averaged steps the weights and the sum of probabilities.

    Args:
        task: The network, the graph and the labels.
        fit: Fits the block model.
        plan: When it does.
        first_layer_decay: Whether weight decay acts on the first layer alone.
    """

    def __init__(
        self, task: Task, fit: BlockFit, plan: BlockPlan, *, first_layer_decay: bool
    ) -> None:
        super().__init__(task)
        self._fit = fit
        self._plan = plan
        self._first_layer_decay = first_layer_decay

    def initial_outer(self) -> Tree:
        """A random block model, and nothing to remember."""
        task = self.task
        nodes, classes = task.num_nodes, task.num_classes
        blocks = Blocks.at_random(nodes, classes, task.seed)
        weights = task.initial_weights()[FLAT]
        return {
            "phi": blocks.phi.to(weights),
            "theta": blocks.theta.to(weights),
            "block": weights.new_empty(0, nodes),
            "density": weights.new_empty(0, classes),
            "weights": weights.new_empty(0, weights.numel()),
            "probability": weights.new_zeros(nodes, classes),
        }

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes on the graph of the step."""
        graph = self._given() if step < self._plan.warmup else self.drawn(outer, step)
        logits = self.task.logits(weights, *graph, Noise(self.task.seed, step))
        loss = self.task.loss_of(logits)
        if self._first_layer_decay:
            return loss + self.task.first_layer_penalty(weights)
        return loss + self.task.penalty(weights)

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Remember what this step predicts, and fit the block model when it is due."""
        plan, outer = self._plan, dict(outer)
        if step > plan.average_after:
            logits = self.task.logits(weights, *self.drawn(outer, step - 1), None)
            outer["probability"] = outer["probability"] + logits.softmax(-1)
            outer["weights"] = _appended(outer["weights"], weights[FLAT])
        if plan.fits_after(step):
            blocks = self._refitted(weights, outer, step)
            outer["phi"], outer["theta"] = blocks
            hard = blocks.membership.argmax(-1).to(blocks.phi)
            outer["block"] = _appended(outer["block"], hard)
            outer["density"] = _appended(outer["density"], blocks.density)
        return outer

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The averaged steps; before there are any, the given graph."""
        first = self._plan.average_after
        remembered = enumerate(outer["weights"], start=first)
        averaged = [
            Member(self.drawn(outer, step), {FLAT: flat}) for step, flat in remembered
        ]
        return averaged or [Member(self._given())]

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """The same as the members predict, from the sum of their probabilities."""
        averaged = len(outer["weights"])
        if averaged == 0:
            return super().scores(weights, outer)
        mean = outer["probability"] / averaged
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    @torch.no_grad()
    def drawn(self, outer: Tree, step: int) -> Propagation:
        """The graph that a step is trained on, in its vanilla propagation."""
        task, latest = self.task, self._plan.latest_fit(step)
        pairs = sample_links(
            outer["block"][latest].long(),
            outer["density"][latest],
            self._fit.delta,
            Noise(task.seed, step),
        )
        pattern = Topology.from_edges(
            torch.cat([pairs, pairs.flip(0)], dim=1),
            task.num_nodes,
            self_loops=True,
            device=task.device,
        ).pattern
        return Propagation(pattern, task.backbone.initial_strength(pattern))

    def _refitted(self, weights: Tree, outer: Tree, step: int) -> Blocks:
        plan, noise = self._plan, Noise(self.task.seed, step)
        blocks = Blocks(outer["phi"], outer["theta"])
        if step == plan.warmup:
            blocks = self._fit.climb(
                blocks,
                iterations=plan.random_iterations,
                noise=noise,
                scale=_RANDOM_SCALE,
            )
        predicted = self.task.logits(weights, *self._given(), None).softmax(-1)
        return self._fit.climb(
            self._fit.restart(blocks, predicted),
            iterations=plan.refit_iterations,
            noise=noise,
            first=_REFIT_FIRST,
        )

    def _given(self) -> Propagation:
        return Propagation(self.task.graph.pattern, self.initial_strengths)


def _appended(rows: Tensor, row: Tensor) -> Tensor:
    return torch.cat([rows, row.unsqueeze(0)])
