"""The whole table in every process, in memory or in mapped files."""

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, final
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.data.mapped import stretches
from gsebo.errors import InvalidInput
from gsebo.training.distributed.entries import Columns, Entries, combine
from gsebo.training.distributed.group import Alone, Group
from gsebo.training.distributed.table import EntryTable

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
