"""Tables of numbers per edge: whole in every process, or shared out.

What a table of numbers per edge is: read and updated for some edges at a time.

A step of training reads the strengths of its batches (``take``), adds up the gradients
of all processes (``gathered``), and moves exactly those entries:

    change = table.take(ids, ["change"])
    ids, gradient = table.gathered([Entries(ids, gradient)], ["change"])
    table.write(ids, moved(table.read(ids), gradient))

The same lines serve one process, processes that each have the whole table, and
processes that each have a share of it.
"""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, final
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.distributed.entries import (
    Columns,
    Entries,
    combine,
    pack,
    places_by_owner,
    unpack,
)
from gsebo.distributed.group import Alone, Group, share, shares
from gsebo.errors import InvalidInput
from gsebo.graph.mapped import stretches

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


# Entries that are copied at once.
CHUNK = 1 << 20


def column_file(folder: Path, name: str) -> Path:
    """Where a column lies, whatever its name."""
    return folder / f"{quote(name, safe='')}.npy"


@final
class LocalTable(EntryTable):
    """The whole table in every process.

    Args:
        columns: Axes before the entries, of each name.
        total: Number of entries.
        dtype: Type of all numbers.
        device: Where they are; files are read by the CPU.
        group: Who has the same table.
        folder: Where to put one ``.npy`` file for each column; ``None`` for memory.
            What was never written takes no space there.
    """

    def __init__(
        self,
        columns: Columns,
        total: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        group: Group | None = None,
        folder: Path | None = None,
    ) -> None:
        self.columns, self.total, self.dtype = dict(columns), total, dtype
        self.device = torch.device("cpu" if folder is not None else device)
        self.group = group or Alone()
        self.held = range(total)
        self._folder = folder
        self._maps: list[mmap.mmap] = []
        self._leaves: Tree = {}
        for name, axes in self.columns.items():
            path = None if folder is None else column_file(folder, name)
            self._leaves[name] = self._zeros((*axes, total), path)

    def take(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Everything is here."""
        return self.read(ids, names)

    def gathered(self, parts: Sequence[Entries], names: Sequence[str]) -> Entries:
        """Every process gets all sums, the same bits."""
        return combine(self.group, self.own_parts(parts, names))

    def read(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Copy entries out."""
        here = ids.to(self.device)
        found: Tree = {}
        for name in self.chosen(names):
            leaf = self._leaves[name]
            pieces = [leaf.index_select(-1, part) for _, part in self._pieces(here)]
            found[name] = torch.cat(pieces, dim=-1).to(ids.device)
        return found

    def write(self, ids: Tensor, values: Tree) -> None:
        """Copy entries in."""
        here = ids.to(self.device)
        for name, leaf in values.items():
            given = leaf.detach().to(self.device)
            for piece, part in self._pieces(here):
                self._leaves[name].index_copy_(-1, part, given[..., piece])

    def by_holder(self, numbers: Tensor) -> Tensor:
        """Everybody has everything, so that one speaks for all."""
        return numbers.unsqueeze(0)

    def copy(self, names: Sequence[str] | None = None) -> "LocalTable":
        """Copy whole columns; files of a copy are gone when nobody has it any more."""
        twin = LocalTable(
            {}, self.total, dtype=self.dtype, device=self.device, group=self.group
        )
        twin.columns, twin._folder = self.chosen(names), self._folder
        for name, axes in twin.columns.items():
            twin._leaves[name] = twin._zeros((*axes, self.total), None)
        twin.assign(self)
        return twin

    def assign(self, other: EntryTable) -> None:
        """Copy whole columns of another table, those that both have."""
        if not isinstance(other, LocalTable) or other.total != self.total:
            raise ValueError("a table shared out in another way; expected the same way")
        for name in self.columns.keys() & other.columns.keys():
            for begin in range(0, self.total, CHUNK):
                piece = other._leaves[name][..., begin : begin + CHUNK]
                self._leaves[name][..., begin : begin + CHUNK] = piece
                self.release()
                other.release()

    def release(self) -> None:
        """Pages of a mapped file count as memory of the process until then."""
        for mapped in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def _pieces(self, ids: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Where to cut ids, so that only a stretch of a file is in memory at a time."""
        if not self._maps or not ids.numel():
            yield slice(None), ids
            return
        for piece in stretches(ids.numpy() * self.dtype.itemsize):
            yield piece, ids[piece]
            self.release()

    def _zeros(self, shape: tuple[int, ...], path: Path | None) -> Tensor:
        """Numbers in memory, in a file, or without a path in a file without a name."""
        if self._folder is None or not all(shape):
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        kind = torch.empty(0, dtype=self.dtype).numpy().dtype
        array: Any
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if path is None:
                with TemporaryFile(dir=self._folder) as file:
                    array = np.memmap(file, kind, "w+", shape=shape)
            else:
                array = np.lib.format.open_memmap(path, "w+", kind, shape)
        except OSError as error:
            raise InvalidInput(
                f"cannot write {self._folder} ({error.strerror}); expected a folder "
                "that is writable and has room"
            ) from error
        self._maps.append(array._mmap)
        return torch.from_numpy(array)


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


def entry_table(
    columns: Columns,
    total: int,
    group: Group,
    *,
    sharded: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
) -> EntryTable:
    """Make a table of zeros for a group.

    Args:
        columns: Axes before the entries, of each name: ``()`` or ``(layers,)``.
        total: Number of entries.
        group: Who shares it.
        sharded: Give each process a share instead of the whole.
        dtype: Type of all numbers.
        device: Where they are.
        folder: Keep them in files there, of each process its own; ``None``: in memory.
    """
    table = LocalTable(
        columns,
        len(share(total, group)) if sharded else total,
        dtype=dtype,
        device=device,
        group=group,
        folder=None if folder is None else folder / f"rank-{group.rank}",
    )
    return ShardedTable(table, total, group) if sharded else table
