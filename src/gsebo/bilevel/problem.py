"""What a bilevel problem is: two losses, and nothing about where they come from."""

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree, present
from gsebo.errors import InvalidInput


def gradient(
    loss: Tensor, *inputs: Tree, create_graph: bool = False
) -> tuple[Tree, ...]:
    """Return ``d loss / d input``, one tree per tree of inputs.

    Args:
        loss: a scalar.
        inputs: what to differentiate with respect to.
        create_graph: whether the result can be differentiated again.

    Returns:
        Trees in which a missing name means zero.
    """
    if loss.dim() != 0:
        shape = list(loss.shape)
        raise InvalidInput(f"a loss has shape {shape}; expected a scalar (shape []).")
    leaves = [leaf for tree in inputs for leaf in tree.values()]
    if not leaves or not loss.requires_grad:
        return tuple({} for _ in inputs)
    found = torch.autograd.grad(
        loss, leaves, create_graph=create_graph, allow_unused=True
    )
    return _split(found, inputs)


def vjp(
    outputs: Tree, cotangents: Tree, *inputs: Tree, retain_graph: bool = False
) -> tuple[Tree, ...]:
    """Return ``sum_o cotangent_o . d o / d input``, one tree per tree of inputs.

    Args:
        outputs: tensors with their graph; those without one are constants.
        cotangents: one per output; a missing name means zero.
        inputs: what to differentiate with respect to.
        retain_graph: whether the graph of the outputs is needed again.

    Returns:
        Trees in which a missing name means zero.
    """
    names = [name for name in cotangents if outputs[name].requires_grad]
    leaves = [leaf for tree in inputs for leaf in tree.values()]
    if not names or not leaves:
        return tuple({} for _ in inputs)
    found = torch.autograd.grad(
        [outputs[name] for name in names],
        leaves,
        [cotangents[name] for name in names],
        retain_graph=retain_graph,
        allow_unused=True,
    )
    return _split(found, inputs)


def _split(found: Sequence[Tensor | None], inputs: Sequence[Tree]) -> tuple[Tree, ...]:
    rest = iter(found)
    return tuple(present(tree, islice(rest, len(tree))) for tree in inputs)


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
