"""What a table of numbers per edge is: read and updated for some edges at a time.

A step of training reads the strengths of its batches (``take``), adds up the gradients
of all processes (``gathered``), and moves exactly those entries:

    change = table.take(ids, ["change"])
    ids, gradient = table.gathered([Entries(ids, gradient)], ["change"])
    table.write(ids, moved(table.read(ids), gradient))

The same lines serve one process, processes that each have the whole table, and
processes that each have a share of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.training.distributed.entries import Entries
from gsebo.training.distributed.group import Group

_CLEARED_AT_ONCE = 2**20


class EntryTable(ABC):
    """Named numbers of every entry, zero at first.

    All processes of the group call ``take``, ``gathered`` and ``by_holder`` together;
    the other methods concern this process only.

    Attributes:
        columns: Axes before the entries, of each name: ``()`` or ``(layers,)``.
        total: Number of entries.
        dtype: Type of all numbers.
        device: Where they are.
        group: Who shares the table.
        held: Entries that this process reads and writes.
    """

    columns: dict[str, tuple[int, ...]]
    total: int
    dtype: torch.dtype
    device: torch.device
    group: Group
    held: range

    @abstractmethod
    def take(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Look entries up, wherever they are; each process asks for its own.

        Args:
            ids: int64 ``[k]``, ascending, each once.
            names: Which columns; ``None`` for all.

        Returns:
            ``[..., k]`` for each name, on the device of the ids.
        """

    @abstractmethod
    def gathered(self, parts: Sequence[Entries], names: Sequence[str]) -> Entries:
        """Add up what all processes have found; return what this one is to update.

        Args:
            parts: Of this process; there may be none. Sums are made in the order of
                ranks and parts, so that they do not depend on how parts are dealt out.
            names: Columns that the values belong to.

        Returns:
            Entries that this process holds, on the device of the table.
        """

    @abstractmethod
    def read(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Look up entries that this process holds, in any order."""

    @abstractmethod
    def write(self, ids: Tensor, values: Tree) -> None:
        """Replace entries that this process holds.

        Where every process has the whole table, each has to write the same.
        """

    @abstractmethod
    def by_holder(self, numbers: Tensor) -> Tensor:
        """Return what each process that holds a share of the table gives, by rank.

        Args:
            numbers: Of this process's share; of the same shape in all.
        """

    @abstractmethod
    def copy(self, names: Sequence[str] | None = None) -> "EntryTable":
        """Return a table with these numbers, in memory or on disk as this one is.

        Args:
            names: Which columns; ``None`` for all.
        """

    @abstractmethod
    def assign(self, other: "EntryTable") -> None:
        """Take over the columns of a table that is shared out in the same way."""

    @abstractmethod
    def release(self) -> None:
        """Let go of what was read from files; they stay as they are."""

    def clear(self) -> None:
        """Make all numbers zero again that this process holds."""
        for begin in range(self.held.start, self.held.stop, _CLEARED_AT_ONCE):
            end = min(begin + _CLEARED_AT_ONCE, self.held.stop)
            ids = torch.arange(begin, end)
            zeros = {
                name: torch.zeros(*axes, len(ids), dtype=self.dtype)
                for name, axes in self.columns.items()
            }
            self.write(ids, zeros)
            self.release()

    def own_parts(
        self, parts: Sequence[Entries], names: Sequence[str]
    ) -> list[Entries]:
        """Return the parts next to the table, with one at least, all in one order."""
        found = [Entries.nothing(self.chosen(names), self.dtype, self.device)]
        for part in parts:
            values = {name: part.values[name].to(self.device) for name in names}
            found.append(Entries(part.ids.to(self.device), values))
        return found

    def chosen(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        """Return some of the columns, all for ``None``."""
        if names is None:
            return self.columns
        return {name: self.columns[name] for name in names}
