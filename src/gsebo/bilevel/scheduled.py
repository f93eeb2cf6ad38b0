"""Optimisers wrapped: a learning rate that changes, and gradients that are clipped."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from gsebo.bilevel.optimizer import Optimizer, State
from gsebo.bilevel.tree import Tree
from gsebo.errors import InvalidInput

# As torch.nn.utils.clip_grad_norm_ has it, so that a norm of zero divides nothing.
_ROUNDING = 1e-6


def scheduled(optimizer: Optimizer, factor: Callable[[int], float]) -> Optimizer:
    """Multiply what each update adds to the weights by ``factor(count)``.

    For an optimiser whose moments do not read the learning rate, which are all of ours,
    this is the learning rate times the factor.

    Args:
        optimizer: Makes the updates.
        factor: From the number of updates before this one, 0 at first.

    >>> from gsebo.bilevel import sgd
    >>> halving = scheduled(sgd(1.0), lambda count: 0.5**count)
    >>> weights = {"w": torch.tensor(4.0)}
    >>> state = halving.init(weights)
    >>> for _ in range(2):
    ...     weights, state = halving.update({"w": torch.tensor(1.0)}, state, weights)
    >>> float(weights["w"])
    2.5
    """

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        moved, after = optimizer.update(gradients, state, weights)
        share = factor(state.count)
        scaled = {
            name: torch.lerp(weight, moved[name], share)
            for name, weight in weights.items()
        }
        return scaled, after

    return Optimizer(optimizer.init, update)


def clipped(optimizer: Optimizer, max_norm: float) -> Optimizer:
    """Shrink the gradients, all by one factor, to a norm of at most ``max_norm``.

    Args:
        optimizer: Makes the updates.
        max_norm: Largest norm of all gradients together, positive and finite.
    """
    number = isinstance(max_norm, Real) and not isinstance(max_norm, bool)
    if not number or not math.isfinite(max_norm) or max_norm <= 0:
        raise InvalidInput(
            f"max_norm={max_norm!r} given; expected a finite number above 0."
        )

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        shrink = (max_norm / (_norm(gradients) + _ROUNDING)).clamp(max=1.0)
        small = {name: leaf * shrink for name, leaf in gradients.items()}
        return optimizer.update(small, state, weights)

    return Optimizer(optimizer.init, update)


def _norm(tree: Tree) -> Tensor:
    """Euclidean norm of all the numbers of a tree that is not empty."""
    each = [torch.linalg.vector_norm(leaf) for leaf in tree.values()]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(each))
    return norm
