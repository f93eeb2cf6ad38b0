"""BGCN: graphs drawn from a block model take the place of the observed one."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.graph import Propagation
from gsebo.methods.baselines.block_model import BlockFit, Blocks, sample_links
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline, both_ways
from gsebo.methods.parameters import ShareBelowOne, Steps
from gsebo.schema import Count
from gsebo.sparse import Noise
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy
from gsebo.training.tape_derivatives import FLAT

# The first fit takes large steps, the others begin as if far advanced.
_RANDOM_SCALE = 0.1
_REFIT_FIRST = 10_000


@final
@dataclass(kw_only=True, eq=False, repr=False)
class BGCN(JointBaseline):
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

    def _problem(self, task: Task) -> "BGCNProblem":
        return BGCNProblem(task, self)


@final
class BGCNProblem(BaselineProblem):
    """Training loss on the given graph at first, then on drawn ones.

    What is remembered: the parameters of the block model, the hard blocks and densities
    of every fit, and of the averaged steps the weights and the sum of probabilities.
    """

    def __init__(self, task: Task, method: BGCN) -> None:
        super().__init__(task)
        self._method = method
        self._fit = BlockFit(
            task.graph,
            delta=method.delta,
            batch_nodes=method.batch_nodes,
            nonlink_share=method.nonlink_share,
            device=task.device,
        )

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
        warm = step >= self._method.warmup_epochs
        graph = self.drawn(outer, step) if warm else self.given
        logits = self.task.logits(weights, *graph, Noise(self.task.seed, step))
        loss = self.task.loss_of(logits)
        if self._method.compat:
            return loss + self.task.first_layer_penalty(weights)
        return loss + self.task.penalty(weights)

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Remember what this step predicts, and fit the block model when it is due."""
        method, outer = self._method, dict(outer)
        if step > method.average_after:
            logits = self.task.logits(weights, *self.drawn(outer, step - 1), None)
            outer["probability"] = outer["probability"] + logits.softmax(-1)
            outer["weights"] = _appended(outer["weights"], weights[FLAT])
        # After the last step no fit would be of use.
        due = range(method.warmup_epochs, method.max_epochs, method.refit_every)
        if step in due:
            blocks = self._refitted(weights, outer, step)
            outer["phi"], outer["theta"] = blocks
            hard = blocks.membership.argmax(-1).to(blocks.phi)
            outer["block"] = _appended(outer["block"], hard)
            outer["density"] = _appended(outer["density"], blocks.density)
        return outer

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        """The averaged steps; before there are any, the given graph."""
        remembered = enumerate(outer["weights"], start=self._method.average_after)
        averaged = [
            Member(self.drawn(outer, step), {FLAT: flat}) for step, flat in remembered
        ]
        return averaged or [Member(self.given)]

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
        method = self._method
        latest = (step - method.warmup_epochs) // method.refit_every
        block, density = outer["block"][latest].long(), outer["density"][latest]
        noise = Noise(self.task.seed, step)
        pairs = sample_links(block, density, method.delta, noise)
        return self.unweighted(both_ways(pairs))

    def _refitted(self, weights: Tree, outer: Tree, step: int) -> Blocks:
        method, noise = self._method, Noise(self.task.seed, step)
        blocks = Blocks(outer["phi"], outer["theta"])
        if step == method.warmup_epochs:
            blocks = self._fit.climb(
                blocks,
                iterations=method.random_iterations,
                noise=noise,
                scale=_RANDOM_SCALE,
            )
        predicted = self.task.logits(weights, *self.given, None).softmax(-1)
        return self._fit.climb(
            self._fit.restart(blocks, predicted),
            iterations=method.refit_iterations,
            noise=noise,
            first=_REFIT_FIRST,
        )


def _appended(rows: Tensor, row: Tensor) -> Tensor:
    return torch.cat([rows, row.unsqueeze(0)])
