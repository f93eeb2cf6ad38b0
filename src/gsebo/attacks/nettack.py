"""Nettack: edges of one node at a time, by a linear network that answers exactly.

Zügner, Akbarnejad and Günnemann, *Adversarial Attacks on Neural Networks for Graph
Data*, KDD 2018. A linear graph convolutional network stands for the victim. In each
step every pair of the attacked node is tried (:mod:`gsebo.attacks.linear`), and that
one changed that leaves its class the smallest margin over the others.

Degrees may be watched, so that the change is not seen in their distribution. With the n
degrees of at least 2, L their sum of logarithms, and

    alpha = 1 + n / (L - n log 1.5),
    l = n log(alpha) + n alpha log(2) - (alpha + 1) L

the log-likelihood of a power law, a graph passes if twice the likelihood of both
distributions, each with its own exponent, exceeds that with a common one by less than
0.004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.attacks.base import Attack, Scene
from gsebo.attacks.linear import Matrix, Numbers, adjacency_of
from gsebo.attacks.perturbation import Perturbation

# The least degree that counts, and what a test of level 0.95 allows.
_LEAST = 2
_ALLOWED = 0.004


@final
@dataclass(kw_only=True)
class Nettack(Attack):
    """Edges at each attacked node that leave its class the smallest margin.

    Every node is attacked on its own, and the budget is one for each of them. Edge
    weights are not used.

    Args:
        degree_test: Whether the degrees have to look as before.
    """

    per_node: ClassVar[bool] = True

    degree_test: bool = True

    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        (node,) = nodes.tolist()
        network, size = scene.linear, scene.graph.num_nodes
        adjacency = adjacency_of(scene.pairs, size)
        before = _Degrees.of(np.diff(adjacency.indptr).astype(np.float64))
        allowed = np.ones(size, np.bool_)
        allowed[node] = False
        label, chosen = int(scene.labels[node]), list[int]()
        for _ in range(budget):
            margin = _margins(network.after_flips(adjacency, node), label)
            fits = allowed & _leaves_no_node_alone(adjacency, node)
            if self.degree_test:
                fits &= _looks_alike(adjacency, node, before)
            best = int(np.where(fits, margin, np.inf).argmin())
            # Where no change helps any more, the rest of the budget stays.
            if not fits[best] or margin[best] >= margin[node]:
                break
            chosen.append(best)
            allowed[best] = False
            adjacency = _flipped(adjacency, node, best)
        pairs = torch.tensor([[node, other] for other in chosen]).view(-1, 2)
        return Perturbation.of_flips(pairs.long(), scene.graph)


def _margins(logits: Numbers, label: int) -> Numbers:
    others = np.delete(logits, label, axis=1)
    found: Numbers = logits[:, label] - others.max(1)
    return found


def _joins(adjacency: Matrix, node: int) -> NDArray[np.bool_]:
    row = np.zeros(adjacency.shape[0], np.bool_)
    row[adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]] = True
    return row


def _leaves_no_node_alone(adjacency: Matrix, node: int) -> NDArray[np.bool_]:
    degree, joined = np.diff(adjacency.indptr), _joins(adjacency, node)
    found: NDArray[np.bool_] = ~joined | ((degree > 1) & (degree[node] > 1))
    return found


def _flipped(adjacency: Matrix, node: int, other: int) -> Matrix:
    changed = adjacency.tolil()
    value = 0.0 if adjacency[node, other] else 1.0
    changed[node, other] = changed[other, node] = value
    return changed.tocsr()


class _Degrees(NamedTuple):
    """What a power law is fitted to: how many degrees, and their logarithms' sum."""

    number: Numbers
    logarithms: Numbers

    @classmethod
    def of(cls, degree: Numbers) -> _Degrees:
        """The same of all nodes."""
        number, logarithms = _counted(degree)
        return cls(number.sum(), logarithms.sum())

    def with_those_of(self, other: _Degrees) -> _Degrees:
        """Both together."""
        number = self.number + other.number
        return _Degrees(number, self.logarithms + other.logarithms)

    @property
    def likelihood(self) -> Numbers:
        """Logarithm of the likelihood of the power law that suits best."""
        n, total = self.number, self.logarithms
        alpha = 1 + n / (total - n * np.log(_LEAST - 0.5))
        found: Numbers = (
            n * (np.log(alpha) + alpha * np.log(_LEAST)) - (alpha + 1) * total
        )
        return found


def _counted(degree: Numbers) -> tuple[Numbers, Numbers]:
    counts = (degree >= _LEAST).astype(np.float64)
    return counts, np.where(counts > 0, np.log(np.maximum(degree, 1)), 0.0)


def _looks_alike(adjacency: Matrix, node: int, before: _Degrees) -> NDArray[np.bool_]:
    """Which flips of a node's pairs leave the degrees as they might have been."""
    degree = np.diff(adjacency.indptr).astype(np.float64)
    change = np.where(_joins(adjacency, node), -1.0, 1.0)
    now = _Degrees.of(degree)
    number, logarithms = now
    for old, new in ((degree[node], degree[node] + change), (degree, degree + change)):
        (gone, less), (come, more) = _counted(old), _counted(new)
        number = number - gone + come
        logarithms = logarithms - less + more
    after = _Degrees(number, logarithms)
    apart = before.likelihood + after.likelihood
    ratio = 2 * (apart - before.with_those_of(after).likelihood)
    found: NDArray[np.bool_] = ratio < _ALLOWED
    return found
