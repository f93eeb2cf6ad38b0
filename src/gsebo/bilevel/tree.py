"""Trees of tensors: a flat dictionary from a name to a tensor.

Weights, outer variables, gradients and optimiser slots are all trees. In a tree of
cotangents a missing name means zero, so that zeros are never allocated.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gsebo.errors import InvalidInput

Tree = dict[str, Tensor]
"""Tensors by name: weights, parameters of a structure, or their gradients."""


def detach(tree: Tree) -> Tree:
    """Return the same numbers without their graph."""
    return {name: leaf.detach() for name, leaf in tree.items()}


def require_grad(tree: Tree) -> Tree:
    """Return new leaves that share memory with ``tree`` and record gradients."""
    return {name: leaf.detach().requires_grad_() for name, leaf in tree.items()}


def add(left: Tree, right: Tree) -> Tree:
    """Return ``left + right``, where a missing name is zero."""
    total = dict(left)
    for name, leaf in right.items():
        total[name] = total[name] + leaf if name in total else leaf
    return total


def filled(tree: Tree, like: Tree) -> Tree:
    """Return ``tree`` with the names and order of ``like``, missing ones as zeros."""
    return {
        name: tree[name] if name in tree else torch.zeros_like(leaf)
        for name, leaf in like.items()
    }


def flatten(tree: Tree) -> Tensor:
    """Lay all leaves end to end in one vector."""
    return torch.cat([leaf.reshape(-1) for leaf in tree.values()])


def unflatten(vector: Tensor, like: Tree) -> Tree:
    """Cut ``vector`` into leaves shaped as those of ``like``; undoes ``flatten``."""
    pieces = torch.split(vector, [leaf.numel() for leaf in like.values()])
    pairs = zip(like.items(), pieces, strict=True)
    return {name: piece.view(leaf.shape) for (name, leaf), piece in pairs}


def gradient(
    loss: Tensor, *inputs: Tree, create_graph: bool = False
) -> tuple[Tree, ...]:
    """Return ``d loss / d input`` of a scalar, one tree per tree of inputs."""
    if loss.dim() != 0:
        shape = list(loss.shape)
        raise InvalidInput(f"a loss has shape {shape}; expected a scalar (shape []).")
    outputs = [loss] if loss.requires_grad else []
    return _differentiate(outputs, [None], inputs, create_graph=create_graph)


def vjp(
    outputs: Tree, cotangents: Tree, *inputs: Tree, retain_graph: bool = False
) -> tuple[Tree, ...]:
    """Return ``sum_o cotangent_o . d o / d input``, one tree per tree of inputs.

    Outputs without a graph are constants.
    """
    names = [name for name in cotangents if outputs[name].requires_grad]
    varying = [outputs[name] for name in names]
    weighing = [cotangents[name] for name in names]
    return _differentiate(varying, weighing, inputs, retain_graph=retain_graph)


def _differentiate(
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    inputs: Sequence[Tree],
    **options: bool,
) -> tuple[Tree, ...]:
    leaves = [leaf for tree in inputs for leaf in tree.values()]
    if not outputs or not leaves:
        return tuple({} for _ in inputs)
    found = iter(
        torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, **options)
    )
    # Each tree takes as many as it has names, and leaves the rest to the next.
    return tuple(
        {n: leaf for n, leaf in zip(tree, found, strict=False) if leaf is not None}
        for tree in inputs
    )
