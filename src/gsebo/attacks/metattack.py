"""Poisoning by the hypergradient: the derivative of an attack through training.

Zügner and Günnemann, *Adversarial Attacks on Graph Neural Networks via Meta Learning*,
ICLR 2019. The attacker trains a network of its own, and asks how what it then predicts
depends on the edges it was trained with. With weights w of pairs of nodes, the network
W_T(w) after T steps of training and what the attacker makes large F,

    score of a pair  =  (1 - 2 w) dF(W_T(w), w) / dw,

which is what joining an absent pair (w = 0) or parting a present one (w = 1) promises.
It is GSEBO's hypergradient with the other sign, taken at entries that need not be
there: one of weight zero changes no prediction, but has a derivative.

Published tools hold that derivative for all N² pairs. Here a block of pairs is drawn in
each round, half of them with an end at a training node, since an edge there is seen in
training; the best of a block stay for the next. So memory is that of a block. In each
round several pairs change, no node being in two of them while there are others: pairs
with a common node promise the same gain twice, and together bring less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from gsebo.attacks.base import Attack, Scene
from gsebo.attacks.candidates import CandidatePairs
from gsebo.attacks.losses import LossName, attack_loss
from gsebo.attacks.perturbation import (
    Perturbation,
    both_directions,
    pair_keys,
    pairs_of_keys,
)
from gsebo.attacks.prbcd import BlockSize
from gsebo.attacks.relaxed import Objective
from gsebo.bilevel import Reverse, Tree, begin, make_optimizer
from gsebo.bilevel.derivatives import (
    AutogradDerivatives,
    Derivatives,
    HandDifferentiated,
)
from gsebo.data.preparation import given_features
from gsebo.data.validate import validate
from gsebo.errors import InvalidInput
from gsebo.graph import Graph, Topology
from gsebo.methods.fitting import (
    NetworkChoices,
    PreparedGraph,
    make_problem,
    resolve_device,
    work_of,
)
from gsebo.methods.parameters import OptimizerName, Rate, Steps, Width
from gsebo.methods.run import threads_for
from gsebo.structure import GraphContext, Predictions, Structure
from gsebo.training import NodeClassification

# Root mean square of the lengths that rows of features are brought to, by one factor
# for all: that of bags of some 16 words. It makes a learning rate mean the same on
# every graph.
_ROW_LENGTH = 4.0
# Of a block, one in so many pairs stays for the next.
_KEPT = 10


@final
class PairWeights(Structure):
    """The vanilla propagation of an undirected graph whose pairs have weights.

    Args:
        pairs: Distinct pairs, int64 ``[pairs, 2]``, the smaller node first, sorted;
            the edges of the graph are both directions of them.
        weight: What each weighs; one of weight 0 is as if it were absent.
    """

    weight: nn.Parameter
    owner: Tensor

    def __init__(self, pairs: Tensor, weight: Tensor) -> None:
        super().__init__()
        self._pairs, self._given = pairs, weight

    def setup(self, context: GraphContext) -> None:
        graph, size = context.graph, context.graph.num_nodes
        edges = pair_keys(graph.graph.edge_index.cpu().T, size)
        owner = torch.searchsorted(pair_keys(self._pairs, size), edges)
        self.register_buffer("owner", owner.to(context.start.device))
        self.weight = nn.Parameter(self._given.to(context.start))
        self._normalise = context.normalise

    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        edges = self.weight.index_select(-1, self.owner)
        entries = nn.functional.pad(edges, (0, graph.num_loops), value=1.0)
        return self._normalise(graph.pattern, entries)

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"weight": outer["weight"].clamp(0, 1)}


@final
class Poisoning(HandDifferentiated):
    """The bilevel problem of an attacker: others train, it makes something large.

    Args:
        problem: Whose inner loss the network is trained by.
        objective: Of the logits that the trained network has, the outer "loss".
    """

    def __init__(self, problem: NodeClassification, objective: Objective) -> None:
        self._problem, self._objective = problem, objective

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self._problem.inner_loss(weights, outer, step)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return self._objective(self._problem.logits(weights, outer, None))

    def derivatives(self, outer: Tree) -> Derivatives | None:
        training = self._problem.derivatives(outer)
        return None if training is None else _Combined(training, self, outer)


@final
class _Combined(Derivatives):
    """Of training by hand, in every step; of the objective by autograd, once."""

    def __init__(self, training: Derivatives, problem: Poisoning, outer: Tree) -> None:
        self._training = training
        self._end = AutogradDerivatives(problem, outer)

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        return self._training.inner_gradient(weights, step)

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        return self._end.outer_gradient(weights, direct_term=direct_term)

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        return self._training.pull_back(weights, step, cotangent)

    def gathered(self) -> Tree:
        return self._training.gathered()


@final
@dataclass(kw_only=True)
class Metattack(Attack):
    """Poisons training: the edges that most change what a trained network predicts.

    The attacker's network is a GCN of two layers without dropout, always trained from
    the same first weights. Directions and weights of the given edges do not count.
    Rate, steps, loss and what is done to features were chosen with the accuracy of a
    GCN on Cora's test nodes in view.

    Args:
        rounds: How often the derivative is taken anew; each round spends an equal share
            of the budget, so that time does not grow with it.
        block_size: How many pairs are looked at in a round beside those that are
            joined, which is what takes memory.
        loss: What is made large, see :mod:`gsebo.attacks.losses`.
        labels: Where it is: ``"self"``: at the attacked nodes, whose labels are those
            that the attacker knows or the victim predicts before the attack;
            ``"train"``: at the training nodes; ``"both"``: the mean of the two.
        inner_steps: Steps of training that are differentiated through.
        inner_optimizer: ``"momentum"``, ``"sgd"`` or ``"adam"``.
        inner_lr: Its learning rate. The attack does most harm to networks that are
            trained about as far as the attacker's own.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        hidden_channels: Width of the hidden layer.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
    """

    rounds: Steps = 30
    block_size: BlockSize = 100_000
    loss: LossName = "prob_margin"
    labels: Literal["self", "train", "both"] = "self"
    inner_steps: Steps = 100
    inner_optimizer: OptimizerName = "momentum"
    inner_lr: Rate = 0.03
    weight_decay: Rate = 5e-4
    hidden_channels: Width = 16
    device: str = "auto"

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        # A network is trained here, whatever victim was given.
        validate(scene.graph)
        rounds = min(self.rounds, budget)
        if self.block_size * rounds < budget:
            raise InvalidInput(
                f"a budget of {budget} pairs given with {self.rounds} rounds and "
                f"blocks of {self.block_size} pairs; expected larger blocks or more "
                "rounds."
            )
        prepared = self._prepared(scene)
        objective = self._objective(scene, nodes)
        blocks = _Blocks(scene, self.block_size)
        size = scene.graph.num_nodes
        joined, flipped = pair_keys(scene.pairs, size), blocks.kept
        for number in range(rounds):
            keys = torch.unique(torch.cat([joined, blocks.draw()]))
            pairs, present = pairs_of_keys(keys, size), torch.isin(keys, joined)
            weight = present.to(prepared.dtype)
            gradient = self.gradient(prepared, pairs, weight, objective, scene.seed)
            gain = (1 - 2 * weight) * gradient.cpu()
            # What has been changed stays so.
            gain[torch.isin(keys, flipped)] = -torch.inf
            more = budget * (number + 1) // rounds - len(flipped)
            chosen = choose_flips(pairs, gain, present, more)
            flipped = torch.cat([flipped, keys[chosen]])
            present[chosen] = ~present[chosen]
            joined = keys[present]
            blocks.keep(keys, gain.masked_fill(present, -torch.inf))
        return Perturbation.of_flips(pairs_of_keys(flipped, size), scene.graph)

    def gradient(
        self,
        prepared: PreparedGraph,
        pairs: Tensor,
        weight: Tensor,
        objective: Objective,
        seed: int,
    ) -> Tensor:
        """The derivative of an objective after training by the weight of each pair.

        Args:
            prepared: The nodes, and which of them are trained on; not its edges.
            pairs: Distinct pairs, int64 ``[pairs, 2]``, the smaller node first, sorted.
            weight: What each weighs, ``[pairs]``.
            objective: Of the logits of every node.
            seed: Of the first weights of the network.
        """
        problem = self.problem(prepared, pairs, weight, seed)
        optimizer = make_optimizer(self.inner_optimizer, self.inner_lr)
        start = begin(optimizer, problem.initial_weights())
        outer, steps = problem.initial_outer(), self.inner_steps
        poisoning = Poisoning(problem, objective)
        engine = Reverse(kept_graphs=None)
        with threads_for(work_of(problem)):
            found = engine.run(poisoning, optimizer, start, outer, steps)
        return found.gradient["weight"]

    def problem(
        self, prepared: PreparedGraph, pairs: Tensor, weight: Tensor, seed: int
    ) -> NodeClassification:
        """Training of the attacker's network on weighted pairs of nodes."""
        return make_problem(
            prepared.with_edges(both_directions(pairs)),
            NetworkChoices("gcn", self.hidden_channels, 2, 0.0, None),
            PairWeights(pairs, weight),
            # The objective says what is attacked: no loss of others is asked for.
            outer_nodes=prepared.inner_nodes,
            weight_decay=self.weight_decay,
            seed=seed,
        )

    def _prepared(self, scene: Scene) -> PreparedGraph:
        """What the attacker trains with: known or predicted labels, scaled features."""
        graph = scene.graph
        train: Tensor = graph.train_mask.cpu()
        if self.labels == "train":
            # Whoever does not ask what a victim predicts needs none.
            labels = torch.where(train, graph.y.cpu().long(), 0)
        else:
            labels = scene.labels
        own = Graph(
            x=_scaled(given_features(graph)),
            edge_index=graph.edge_index,
            y=labels,
            train_mask=train,
            # Of no use but to count the classes among all labels.
            val_mask=~train,
            num_nodes=graph.num_nodes,
        )
        return PreparedGraph(own, resolve_device(self.device))

    def _objective(self, scene: Scene, nodes: Tensor) -> Objective:
        trained = scene.graph.train_mask.cpu().nonzero().squeeze(1)
        own = (trained, scene.graph.y.cpu().long()[trained])
        if self.labels == "train":
            parts = [own]
        else:
            attacked = (nodes, scene.labels[nodes])
            parts = [attacked] if self.labels == "self" else [attacked, own]

        def objective(logits: Tensor) -> Tensor:
            device = logits.device
            each = [
                attack_loss(self.loss, logits[at.to(device)], labels.to(device))
                for at, labels in parts
            ]
            return torch.stack(each).mean()

        return objective


@final
class _Blocks:
    """Keys of the pairs that are looked at, round by round.

    Attributes:
        kept: Those of earlier rounds that are looked at again, none at first.
    """

    def __init__(self, scene: Scene, block_size: int) -> None:
        self._nodes, self._block_size = scene.graph.num_nodes, block_size
        trained = scene.graph.train_mask.cpu().nonzero().squeeze(1)
        self._near = CandidatePairs(self._nodes, trained)
        self._any = CandidatePairs(self._nodes)
        self._generator = scene.generator()
        self.kept = torch.empty(0, dtype=torch.int64)

    def draw(self) -> Tensor:
        """The kept pairs and new ones; some may be the same."""
        fresh = self._block_size - len(self.kept)
        shares = ((self._near, fresh // 2), (self._any, fresh - fresh // 2))
        drawn = [
            pair_keys(pairs.pairs(pairs.draw(count, self._generator)), self._nodes)
            for pairs, count in shares
        ]
        return torch.cat([self.kept, *drawn])

    def keep(self, keys: Tensor, gain: Tensor) -> None:
        """Keep the pairs that promise most."""
        best = gain.topk(min(self._block_size // _KEPT, len(gain))).indices
        self.kept = keys[best[gain[best] > 0]]


def choose_flips(pairs: Tensor, gain: Tensor, present: Tensor, count: int) -> Tensor:
    """Places of the pairs to change: those that gain most, no node twice if possible.

    Where that gives too few, every node may be in two of them, then in three, and so
    on. Only what promises a gain is chosen, and no node loses its last edge.

    Args:
        pairs: int64 ``[pairs, 2]``.
        gain: What the change of each promises, ``[pairs]``.
        present: Which of them are joined, bool ``[pairs]``.
        count: How many to choose, at most.

    >>> pairs = torch.tensor([[0, 1], [0, 2], [3, 4]])
    >>> gain = torch.tensor([3.0, 2.0, 1.0])
    >>> choose_flips(pairs, gain, torch.zeros(3, dtype=torch.bool), 2)
    tensor([0, 2])
    """
    size = int(pairs.max()) + 1
    degree = np.bincount(pairs[present].flatten().numpy(), minlength=size)
    times = np.zeros(size, dtype=np.int64)
    order = gain.argsort(descending=True, stable=True)
    left = order[gain[order] > 0].tolist()
    ends, parted = pairs.numpy(), present.numpy()
    chosen: list[int] = []
    most = 0
    while left and len(chosen) < count:
        most += 1
        later: list[int] = []
        for place in left:
            if len(chosen) == count:
                break
            both = ends[place]
            if times[both].max() >= most:
                later.append(place)
            elif not parted[place] or degree[both].min() > 1:
                times[both] += 1
                degree[both] += -1 if parted[place] else 1
                chosen.append(place)
        left = later
    return torch.tensor(chosen, dtype=torch.int64)


def _scaled(x: Tensor) -> Tensor:
    """Features times a number that gives their rows the length they should have."""
    stored = x.values() if x.layout == torch.sparse_csr else x
    length = float((stored.double().square().sum() / len(x)).sqrt())
    return x * (_ROW_LENGTH / length) if length > 0 else x
