"""Trees of tensors: a flat dictionary from a name to a tensor.

Weights, outer variables, gradients and optimiser slots are all trees. In a tree of
cotangents a missing name means zero, so that zeros are never allocated.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

Tree = dict[str, Tensor]


def detach(tree: Tree) -> Tree:
    """Return the same numbers without their graph."""
    return {name: leaf.detach() for name, leaf in tree.items()}


def require_grad(tree: Tree) -> Tree:
    """Return new leaves that share memory with ``tree`` and record gradients."""
    return {name: leaf.detach().requires_grad_() for name, leaf in tree.items()}


def present(names: Iterable[str], leaves: Iterable[Tensor | None]) -> Tree:
    """Name the leaves that are there and leave out the missing ones (zeros)."""
    pairs = zip(names, leaves, strict=True)
    return {name: leaf for name, leaf in pairs if leaf is not None}


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
