"""Attacks that ask no network what to do: pairs by chance, and by classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from gsebo.attacks.base import Attack, Scene
from gsebo.attacks.candidates import CandidatePairs
from gsebo.attacks.perturbation import Perturbation


@dataclass(kw_only=True)
class HeuristicAttack(Attack):
    """What both have in common.

    Args:
        ends: ``"attacked"``: one end of each pair is an attacked node; ``"any"``: any
            pair.
    """

    ends: Literal["attacked", "any"] = "attacked"

    def _candidates(self, scene: Scene, nodes: Tensor) -> CandidatePairs:
        size = scene.graph.num_nodes
        return CandidatePairs(size, nodes if self.ends == "attacked" else None)


@final
@dataclass(kw_only=True)
class RandomAttack(HeuristicAttack):
    """Random pairs are joined: what any other attack has to beat."""

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        candidates = self._candidates(scene, nodes)
        taken = _joined(candidates, scene.pairs)
        numbers = candidates.draw(budget, scene.generator(), without=taken)
        return Perturbation.of_flips(candidates.pairs(numbers), scene.graph)


@final
@dataclass(kw_only=True)
class DICE(HeuristicAttack):
    """Pairs within a class are parted, pairs between classes joined: half and half.

    Waniek, Michalak, Wooldridge and Rahwan, *Hiding individuals and communities in a
    social network*, 2018: delete internally, connect externally. Classes are what the
    attacker takes for them.
    """

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        candidates, generator = self._candidates(scene, nodes), scene.generator()
        near = scene.pairs[candidates.contains(scene.pairs)]
        within = near[_same_class(near, scene.labels)]
        count = min(budget // 2, len(within))
        chosen = generator.choice(len(within), count, replace=False, shuffle=False)
        removed = within[torch.from_numpy(np.sort(chosen))]
        added = _between(candidates, scene, budget - count, generator)
        return Perturbation(added, removed)


def _joined(candidates: CandidatePairs, pairs: Tensor) -> Tensor:
    """Numbers of the pairs that a graph joins, of those that are candidates."""
    return candidates.numbers(pairs[candidates.contains(pairs)])


def _same_class(pairs: Tensor, labels: Tensor) -> Tensor:
    first, second = labels[pairs].unbind(1)
    return first == second


def _between(
    candidates: CandidatePairs,
    scene: Scene,
    wanted: int,
    generator: np.random.Generator,
) -> Tensor:
    """So many pairs of two classes that are not joined, or all that there are."""
    taken = _joined(candidates, scene.pairs)
    found = torch.empty((0, 2), dtype=torch.int64)
    while len(found) < wanted and len(taken) < candidates.count:
        # Several for each that is missing: some turn out to be of one class.
        more = 4 * (wanted - len(found)) + 16
        numbers = candidates.draw(more, generator, without=taken)
        pairs = candidates.pairs(numbers)
        pairs = pairs[~_same_class(pairs, scene.labels)]
        order = torch.from_numpy(generator.permutation(len(pairs)))
        found = torch.cat([found, pairs[order]])
        taken = torch.cat([taken, numbers])
    return found[:wanted]
