"""Attacks by the gradient on random blocks of pairs, in memory of the block alone.

Geisler, Schmidt, Sirin, Zügner, Bojchevski and Günnemann, *Robustness of Graph Neural
Networks at Scale*, NeurIPS 2021. Every pair of a block has a share p by which it is
changed (:mod:`gsebo.attacks.relaxed`). PRBCD climbs,

    p <- projection of p + step * gradient onto {0 <= p <= 1, sum of p <= budget},

and after every step draws anew those pairs of the block that got no share. In the end
whole pairs are drawn by their shares. GRBCD takes in each step the pairs of a fresh
block whose gradients are largest, and changes them for good.

The network is not trained again on the way: this is evasion. To poison one, apply what
comes out and fit.

Other than there, the length of a step is relative to the largest derivatives: theirs
suits large graphs, and on small ones throws shares back and forth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, final

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from gsebo.attacks.base import Attack, Scene
from gsebo.attacks.candidates import CandidatePairs
from gsebo.attacks.losses import LossName, attack_loss, targeted_loss
from gsebo.attacks.perturbation import Perturbation
from gsebo.attacks.relaxed import Objective, RelaxedGraph
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.methods.parameters import Positive, Steps, StepsOrZero

BlockSize = Annotated[int, Meta(ge=1, le=2**27)]
"""How many pairs are looked at together."""

_BISECTIONS = 50


@dataclass(kw_only=True)
class BlockAttack(Attack):
    """What both attacks on random blocks have in common.

    Args:
        block_size: How many pairs are looked at together, which is what takes memory.
        epochs: Number of steps.
        loss: What is made large: ``"tanh_margin"``, ``"prob_margin"``, ``"masked"``
            (cross-entropy of nodes that are predicted rightly still) or
            ``"cross_entropy"``; see :mod:`gsebo.attacks.losses`.
        target_class: Class that the attacked nodes are to be put into; by default any
            that is wrong.
        ends: ``"attacked"``: one end of each pair is an attacked node; ``"any"``: any
            pair; ``"auto"``: the former where one node is attacked on its own.
    """

    block_size: BlockSize = 100_000
    epochs: Steps = 125
    loss: LossName = "tanh_margin"
    target_class: Count | None = None
    ends: Literal["auto", "attacked", "any"] = "auto"

    def _candidates(self, scene: Scene, nodes: Tensor, budget: int) -> CandidatePairs:
        close = self.ends == "attacked" or (self.ends == "auto" and len(nodes) == 1)
        pairs = CandidatePairs(scene.graph.num_nodes, nodes if close else None)
        if min(self.block_size, pairs.count) < budget:
            raise InvalidInput(
                f"a budget of {budget} pairs and blocks of {self.block_size} out of "
                f"{pairs.count} pairs given; expected no more pairs than a block has."
            )
        return pairs

    def _objective(self, scene: Scene, nodes: Tensor) -> Objective:
        if (target := self.target_class) is None:
            labels = scene.labels[nodes]
            return lambda z: attack_loss(self.loss, z[nodes], labels.to(z.device))
        with torch.no_grad():
            classes = scene.victim.logits(*scene.edges).shape[1]
        if target >= classes:
            raise InvalidInput(
                f"target_class={target} given; expected a class from 0 to "
                f"{classes - 1}."
            )
        return lambda z: targeted_loss(self.loss, z[nodes], target)


@final
@dataclass(kw_only=True)
class PRBCD(BlockAttack):
    """Projected randomised block coordinate descent on shares of pairs.

    Args:
        resampling_epochs: Steps after which pairs without a share are drawn anew; from
            then on steps become shorter.
        lr: How far the shares of the best pairs, as many as the budget, go in a step.
        samples: How many times whole pairs are drawn by their shares in the end; the
            best is kept.
    """

    resampling_epochs: StepsOrZero = 100
    lr: Positive = 0.2
    samples: StepsOrZero = 20

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        candidates = self._candidates(scene, nodes, budget)
        objective, graph = self._objective(scene, nodes), RelaxedGraph(scene)
        generator = scene.generator()
        numbers = candidates.draw(self.block_size, generator)
        shares = torch.zeros(len(numbers))
        best = _Best()
        block = graph.block(candidates.pairs(numbers))
        for epoch in range(self.epochs):
            gradient = graph.gradient(block, shares, objective).cpu().float()
            late = max(0, epoch - self.resampling_epochs)
            step = self.lr * gradient / _scale(gradient, budget) / (late + 1) ** 0.5
            shares = project(shares + step, budget)
            chosen = numbers[best_places(shares, budget)]
            found = graph.value(candidates.pairs(chosen), objective)
            best.offer(found, chosen, numbers, shares)
            if epoch + 1 < self.resampling_epochs:
                numbers, shares = self._drawn_anew(
                    candidates, numbers, shares, generator
                )
                block = graph.block(candidates.pairs(numbers))
            elif epoch + 1 == self.resampling_epochs:
                numbers, shares = best.numbers, best.shares
                block = graph.block(candidates.pairs(numbers))
        for chosen in self._samples(best, budget, generator):
            found = graph.value(candidates.pairs(chosen), objective)
            best.offer(found, chosen, best.numbers, best.shares)
        return Perturbation.of_flips(candidates.pairs(best.chosen), scene.graph)

    def _drawn_anew(
        self,
        candidates: CandidatePairs,
        numbers: Tensor,
        shares: Tensor,
        generator: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """A block with the pairs that have a share, at most half of it, and others."""
        kept = best_places(shares, max(self.block_size // 2, 1))
        kept_numbers = numbers[kept]
        fresh = candidates.draw(
            self.block_size - len(kept), generator, without=kept_numbers
        )
        both = torch.cat([kept_numbers, fresh])
        return both, torch.cat([shares[kept], torch.zeros(len(fresh))])

    def _samples(
        self, best: _Best, budget: int, generator: np.random.Generator
    ) -> list[Tensor]:
        """Pairs drawn by their shares; the largest get what is left of the budget."""
        found = []
        for _ in range(self.samples):
            drawn = generator.random(len(best.shares)) < best.shares.numpy()
            rank = torch.from_numpy(drawn).float() + best.shares
            found.append(best.numbers[best_places(rank, budget)])
        return found


@final
class _Best:
    """The best pairs so far, and the shares that they came from."""

    def __init__(self) -> None:
        self.value = -np.inf
        self.chosen = self.numbers = torch.empty(0, dtype=torch.int64)
        self.shares = torch.empty(0)

    def offer(
        self, value: float, chosen: Tensor, numbers: Tensor, shares: Tensor
    ) -> None:
        if value > self.value:
            self.value, self.chosen = value, chosen
            self.numbers, self.shares = numbers, shares


@final
@dataclass(kw_only=True)
class GRBCD(BlockAttack):
    """Greedy randomised block coordinate descent: whole pairs, a few in each step."""

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        candidates = self._candidates(scene, nodes, budget)
        objective, graph = self._objective(scene, nodes), RelaxedGraph(scene)
        generator = scene.generator()
        steps = min(self.epochs, budget)
        chosen = torch.empty(0, dtype=torch.int64)
        for epoch in range(steps):
            fresh = candidates.draw(self.block_size, generator, without=chosen)
            block = graph.block(candidates.pairs(torch.cat([chosen, fresh])))
            shares = torch.cat([torch.ones(len(chosen)), torch.zeros(len(fresh))])
            gradient = graph.gradient(block, shares, objective).cpu()[len(chosen) :]
            more = budget * (epoch + 1) // steps - len(chosen)
            chosen = torch.cat([chosen, fresh[best_places(gradient, more)]])
        return Perturbation.of_flips(candidates.pairs(chosen), scene.graph)


def _scale(gradient: Tensor, budget: int) -> float:
    """Mean of the largest derivatives, as many as a budget has pairs.

    Derivatives become smaller with the number of attacked nodes and with degrees. In
    units of this, one length of steps suits graphs of all sizes.
    """
    top = gradient.clamp(min=0).topk(min(budget, len(gradient))).values
    return max(float(top.mean()), torch.finfo(gradient.dtype).tiny)


def best_places(values: Tensor, count: int) -> Tensor:
    """Places of the largest values that are positive, at most ``count`` of them."""
    places = values.topk(min(count, len(values))).indices
    return places[values[places] > 0]


def project(values: Tensor, budget: int) -> Tensor:
    """The nearest shares in [0, 1] whose sum is at most a budget.

    They are ``clamp(values - m, 0, 1)`` with the least m >= 0 for which they are within
    the budget, which bisection finds.

    >>> project(torch.tensor([0.9, 0.6, -1.0]), 1)
    tensor([0.6500, 0.3500, 0.0000])
    """
    if float(values.clamp(0, 1).sum()) <= budget:
        return values.clamp(0, 1)
    low, high = 0.0, float(values.max())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        within = float((values - middle).clamp(0, 1).sum()) <= budget
        low, high = (low, middle) if within else (middle, high)
    return (values - high).clamp(0, 1)
