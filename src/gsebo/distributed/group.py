"""Those who train together: one process alone, or several that exchange tensors.

Every method of a group is a meeting: all processes call it, in the same order. What a
sum returns does not depend on who comes first, and is the same to the last bit for all.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree, flatten, unflatten
from gsebo.errors import InvalidInput


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


Content = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and facts that JSON can hold."""


def told_by_first(group: Group, find: Callable[[], Content | None]) -> Content | None:
    """Let the first process find something, and tell everybody.

    Nobody else needs the files that it reads: they may lie on its machine alone.

    Args:
        group: Who takes part.
        find: Called by the first process; what it refuses is refused by all.
    """
    if group.size == 1:
        return find()
    content: Content | None = None
    refused = None
    if group.is_first:
        try:
            content = find()
        except InvalidInput as error:
            refused = str(error)
    own, facts = content or ({}, {})
    forms = {
        name: (str(leaf.dtype).removeprefix("torch."), list(leaf.shape))
        for name, leaf in own.items()
    }
    letter = json.dumps([refused, content is not None, facts, forms])
    refused, is_found, facts, forms = json.loads(_text_of_first(group, letter))
    if refused is not None:
        raise InvalidInput(refused)
    if not is_found:
        return None
    tensors = {}
    for name, (kind, shape) in forms.items():
        empty = torch.empty(shape, dtype=getattr(torch, kind))
        tensors[name] = group.from_first(own.get(name, empty))
    return tensors, facts


def agreed(group: Group, decision: bool) -> bool:
    """Let the first process decide for all."""
    return bool(group.from_first(torch.tensor([float(decision)])).item())


def _text_of_first(group: Group, text: str) -> str:
    letters = torch.tensor(list(text.encode()), dtype=torch.uint8)
    length = int(group.from_first(torch.tensor([len(letters)])).item())
    if not group.is_first:
        letters = torch.empty(length, dtype=torch.uint8)
    return bytes(group.from_first(letters).tolist()).decode()
