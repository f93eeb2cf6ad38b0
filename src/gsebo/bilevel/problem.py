"""What a bilevel problem is: two losses, and nothing about where they come from."""

from typing import Protocol

from torch import Tensor

from gsebo.bilevel.tree import Tree


class BilevelProblem(Protocol):
    """Minimise an outer loss over weights that an inner loss has trained.

    With inner loss ``L`` and outer loss ``F``,

        min_Z F(W_tau(Z), Z)   where   W_t = step(W_{t-1}, grad_W L(W_{t-1}, Z, t)).
    """

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Return ``L(W, Z, step)``, a scalar and a pure function of its arguments.

        Args:
            weights: the inner variables ``W``.
            outer: the outer variables ``Z``.
            step: the number of the inner step since training began. Anything random,
                such as a dropout mask, has to be a function of it: a step is replayed
                by calling this again with the same arguments.
        """
        ...

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """Return ``F(W, Z)``, a scalar and a pure function of its arguments."""
        ...
