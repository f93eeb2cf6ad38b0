"""One share of the table in each process, which answers what the others ask."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.training.distributed.entries import (
    Entries,
    combine,
    pack,
    places_by_owner,
    unpack,
)
from gsebo.training.distributed.group import Group, shares
from gsebo.training.distributed.local_table import LocalTable
from gsebo.training.distributed.table import EntryTable


@final
class ShardedTable(EntryTable):
    """One share of the table in each process: a range of entries.

    Entry ``k`` belongs to rank ``k * size // total``.

    Args:
        shard: The entries of this process, numbered from 0.
        total: Number of entries of all processes together.
        group: Who has the other shares.
    """

    def __init__(self, shard: LocalTable, total: int, group: Group) -> None:
        self._owners = shares(total, group.size)
        self.held = self._owners[group.rank]
        if shard.total != len(self.held):
            raise ValueError(f"{shard.total} entries; expected {len(self.held)}")
        self._shard = shard
        self.columns, self.dtype, self.device = shard.columns, shard.dtype, shard.device
        self.total, self.group = total, group

    def take(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Ask the owners, and answer what the others ask."""
        places = places_by_owner(ids, self._owners)
        asked = self.group.exchange([ids[place] for place in places])
        answers = [pack(self.read(each, names)) for each in asked]
        return unpack(torch.cat(self.group.exchange(answers)), self.chosen(names))

    def gathered(self, parts: Sequence[Entries], names: Sequence[str]) -> Entries:
        """Every process gets the sums of its own entries."""
        return combine(self.group, self.own_parts(parts, names), self._owners)

    def read(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Copy entries out of this process's share."""
        return self._shard.read(ids - self.held.start, names)

    def write(self, ids: Tensor, values: Tree) -> None:
        """Copy entries into this process's share."""
        self._shard.write(ids - self.held.start, values)

    def by_holder(self, numbers: Tensor) -> Tensor:
        """Of every process."""
        return torch.cat(self.group.gather(numbers.unsqueeze(0)))

    def copy(self, names: Sequence[str] | None = None) -> "ShardedTable":
        """Copy this process's share."""
        return ShardedTable(self._shard.copy(names), self.total, self.group)

    def assign(self, other: EntryTable) -> None:
        """Copy this process's share of another table, of columns that both have."""
        if not isinstance(other, ShardedTable):
            raise ValueError("a table shared out in another way; expected the same way")
        self._shard.assign(other._shard)

    def release(self) -> None:
        """Of this process's share."""
        self._shard.release()
