"""Those who train together: one process alone, or several that exchange tensors.

Every method of a group is a meeting: all processes call it, in the same order. What a
sum returns does not depend on who comes first, and is the same to the last bit for all.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree, flatten, unflatten


class Group(ABC):
    """Processes that train together.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensors of all processes; the same bits everywhere."""

    @abstractmethod
    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, by rank.

        They may have different lengths, but not types or further axes.
        """

    @abstractmethod
    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Send one tensor to each process; return what each has sent to this one.

        Args:
            parts: What each rank is to get. They may have different lengths, but not
                types or further axes.
        """

    @abstractmethod
    def from_first(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first process; all have the same shape and type."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until everybody is here."""

    def sum_tree(self, tree: Tree) -> Tree:
        """Add up the trees of all processes, which have one type and the same names."""
        if not tree:
            return {}
        return unflatten(self.sum(flatten(tree)), tree)

    def sum_in_order(self, parts: Sequence[Tree], like: Tree) -> Tree:
        """Add up all parts of all processes, one after another.

        The bits of the sum depend on the parts and not on how they are dealt out, so
        that any number of processes finds the same. All parts travel, not only sums.

        Args:
            parts: Those of this process; there may be none.
            like: A tree with the names, shapes and type of the parts.
        """
        if not like:
            return {}
        vectors = [flatten({name: part[name] for name in like}) for part in parts]
        own = (
            torch.stack(vectors) if vectors else flatten(like).new_empty(0, _len(like))
        )
        total: Tensor | None = None
        for vector in torch.cat(self.gather(own)):
            total = vector.clone() if total is None else total.add_(vector)
        if total is None:
            total = own.new_zeros(_len(like))
        return unflatten(total, like)


@final
class Alone(Group):
    """One process."""

    rank = 0
    size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """A copy."""
        return tensor.detach().clone()

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor itself."""
        return [tensor]

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The only part."""
        (part,) = parts
        return [part]

    def from_first(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor

    def barrier(self) -> None:
        """Nobody to wait for."""


def shares(count: int, size: int) -> list[range]:
    """Deal ``count`` things out to ``size`` processes, evenly and in order.

    Thing ``k`` goes to process ``k * size // count``.

    >>> shares(5, 2)
    [range(0, 3), range(3, 5)]
    """
    bounds = [-(-rank * count // size) for rank in range(size + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


def share(count: int, group: Group) -> range:
    """Which of ``count`` things this process takes; some may get none."""
    return shares(count, group.size)[group.rank]


def _len(tree: Tree) -> int:
    return sum(leaf.numel() for leaf in tree.values())
