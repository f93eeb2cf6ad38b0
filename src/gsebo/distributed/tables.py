"""Tables of numbers per edge: whole in every process, or shared out; also in files.

A step of training reads the strengths of its batches (``take``), adds up the gradients
of all processes (``gathered``), and moves exactly those entries:

    change = table.take(ids, ["change"])
    ids, gradient = table.gathered([Entries(ids, gradient)], ["change"])
    table.write(ids, moved(table.read(ids), gradient))

The same lines serve one process, processes that each have the whole table, and
processes that each have a share of it. Gradients are added up over batches and
processes in a fixed order, so that everybody has the same bits, and so does any number
of processes.
"""

import copy
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, final
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.data.formats.npy_stream import header_of, open_array
from gsebo.distributed.group import Alone, Group, shares
from gsebo.errors import InvalidInput
from gsebo.files import checksum
from gsebo.graph.mapped import stretches

# Entries that are copied at once.
CHUNK = 1 << 20
_WHAT = "a column of a table written by gsebo"

Columns = Mapping[str, tuple[int, ...]]
"""The axes before the entries, of each named column: ``()`` or ``(layers,)``."""


@final
class Entries(NamedTuple):
    """Named values ``[..., k]`` of some entries; ids ascend, each once, ``[k]``.

    Attributes:
        ids: Numbers of the entries, ascending, each once, ``[k]``.
        values: What each of them has, by names, ``[..., k]``.
    """

    ids: Tensor
    values: Tree

    def cut(self, place: slice) -> "Entries":
        """Return those at some of the places."""
        values = {name: leaf[..., place] for name, leaf in self.values.items()}
        return Entries(self.ids[place], values)


@final
class EntryTable:
    """Named numbers of every entry, zero at first.

    All processes of the group call ``take``, ``gathered`` and ``by_holder`` together;
    the other methods concern this process only, and the entries that it has: ``held``.

    Args:
        columns: What every entry has.
        total: Number of entries.
        group: Who shares the table; alone by default.
        sharded: Give each process a share instead of the whole. Entry ``k`` belongs to
            rank ``k * size // total``.
        dtype: Type of all numbers.
        device: Where they are, if not in files.
        folder: Where to put one ``.npy`` file for each column, of each process apart;
            in memory by default. What was never written takes no space there.
    """

    def __init__(
        self,
        columns: Columns,
        total: int,
        group: Group | None = None,
        *,
        sharded: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        folder: Path | None = None,
    ) -> None:
        self.columns, self.total, self.dtype = dict(columns), total, dtype
        self.device = torch.device("cpu" if folder is not None else device)
        self.group = group or Alone()
        self._owners = shares(total, self.group.size) if sharded else None
        self.held = self._owners[self.group.rank] if self._owners else range(total)
        self._folder = folder and folder / f"rank-{self.group.rank}"
        self._maps: list[mmap.mmap] = []
        self._leaves = {name: self._zeros(name) for name in self.columns}

    def take(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Look entries up, wherever they are; each process asks for its own.

        Ids ascend, each once, int64 ``[k]``; found are ``[..., k]`` on their device, of
        some names or of all.
        """
        if self._owners is None:
            return self.read(ids, names)
        places = _places_by_owner(ids, self._owners)
        asked = self.group.exchange([ids[place] for place in places])
        answers = [_pack(self.read(each, names)) for each in asked]
        return _unpack(torch.cat(self.group.exchange(answers)), self.chosen(names))

    def gathered(self, parts: Sequence[Entries], names: Sequence[str]) -> Entries:
        """Add up what all processes have found; return what this one is to update.

        There may be no parts. Sums are made in the order of ranks and parts, so that
        they do not depend on how parts are shared out. The result is on the device of
        the table, and of entries that this process holds: of a whole table all sums.
        """
        ids = torch.empty(0, dtype=torch.int64, device=self.device)
        empty = {
            name: torch.empty(*axes, 0, dtype=self.dtype, device=self.device)
            for name, axes in self.chosen(names).items()
        }
        own = [Entries(ids, empty)]
        for part in parts:
            values = {name: part.values[name].to(self.device) for name in names}
            own.append(Entries(part.ids.to(self.device), values))
        return _combine(self.group, own, self._owners)

    def read(self, ids: Tensor, names: Sequence[str] | None = None) -> Tree:
        """Look up entries that this process holds, in any order."""
        here = self._places(ids)
        found: Tree = {}
        for name in self.chosen(names):
            leaf = self._leaves[name]
            pieces = [leaf.index_select(-1, part) for _, part in self._pieces(here)]
            found[name] = torch.cat(pieces, dim=-1).to(ids.device)
        return found

    def write(self, ids: Tensor, values: Tree) -> None:
        """Replace entries that this process holds; of a whole table all write alike."""
        here = self._places(ids)
        for name, leaf in values.items():
            given = leaf.detach().to(self.device)
            for piece, part in self._pieces(here):
                self._leaves[name].index_copy_(-1, part, given[..., piece])

    def by_holder(self, numbers: Tensor) -> Tensor:
        """Stack what each process finds in its share; a whole table is one share."""
        own = numbers.unsqueeze(0)
        return own if self._owners is None else torch.cat(self.group.gather(own))

    def copy(self, names: Sequence[str] | None = None) -> "EntryTable":
        """Return a table with these numbers, in memory or on disk as this one is.

        Files of a copy are gone when nobody has it any more.
        """
        twin = copy.copy(self)
        twin.columns, twin._maps = self.chosen(names), []
        twin._leaves = {name: twin._zeros(name, is_copy=True) for name in twin.columns}
        twin.assign(self)
        return twin

    def assign(self, other: "EntryTable") -> None:
        """Take over the columns of a table that is shared out in the same way."""
        if (other.total, other._owners) != (self.total, self._owners):
            raise ValueError("a table shared out in another way; expected the same way")
        for name in self.columns.keys() & other.columns.keys():
            for piece in _chunks(len(self.held)):
                self._leaves[name][..., piece] = other._leaves[name][..., piece]
                self.release()
                other.release()

    def clear(self) -> None:
        """Make all numbers zero again that this process holds."""
        for leaf in self._leaves.values():
            for piece in _chunks(len(self.held)):
                leaf[..., piece] = 0
                self.release()

    def release(self) -> None:
        """Let go of what was read from files; they stay as they are."""
        # Pages of a mapped file count as memory of the process until then.
        for mapped in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def chosen(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        """Return some of the columns, all for ``None``."""
        wanted = self.columns if names is None else names
        return {name: self.columns[name] for name in wanted}

    def saved(self, folder: Path, name: str, piece: slice) -> NDArray[Any]:
        """A piece of a column in a folder; raises if something else lies there."""
        # Opened anew each time: what was read no longer counts as memory.
        shape = (*self.columns[name], self.total)
        return open_array(_column_file(folder, name), self.kind, shape)[..., piece]

    @property
    def kind(self) -> np.dtype:
        """Type of all numbers, as numpy calls it."""
        return torch.empty(0, dtype=self.dtype).numpy().dtype

    def _places(self, ids: Tensor) -> Tensor:
        return (ids - self.held.start if self.held.start else ids).to(self.device)

    def _pieces(self, ids: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Where to cut ids, so that only a stretch of a file is in memory at a time."""
        if not self._maps or not ids.numel():
            yield slice(None), ids
            return
        for piece in stretches(ids.numpy() * self.dtype.itemsize):
            yield piece, ids[piece]
            self.release()

    def _zeros(self, name: str, *, is_copy: bool = False) -> Tensor:
        """Numbers in memory or in a file, which has no name if it is that of a copy."""
        shape = (*self.columns[name], len(self.held))
        if self._folder is None or not all(shape):
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        array: Any
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if is_copy:
                with TemporaryFile(dir=self._folder) as file:
                    array = np.memmap(file, self.kind, "w+", shape=shape)
            else:
                path = _column_file(self._folder, name)
                array = np.lib.format.open_memmap(path, "w+", self.kind, shape)
        except OSError as error:
            raise InvalidInput(
                f"cannot write {self._folder} ({error.strerror}); expected a folder "
                "that is writable and has room"
            ) from error
        self._maps.append(array._mmap)
        return torch.from_numpy(array)


def add_up(parts: Sequence[Entries]) -> Entries:
    """Return all entries of all parts, the values of each added in the parts' order.

    There is at least one part, and all have the same names.

    Args:
        parts: Entries that may have ids in common.
    """
    full = [part for part in parts if part.ids.numel()]
    if len(full) < 2:
        return full[0] if full else parts[0]
    ids, places = torch.unique(
        torch.cat([part.ids for part in full]), return_inverse=True
    )
    lengths = [part.ids.numel() for part in full]
    place_of = list(zip(full, torch.split(places, lengths), strict=True))
    values = {}
    for name, leaf in full[0].values.items():
        total = leaf.new_zeros(*leaf.shape[:-1], ids.numel())
        # One call for each part, in which no entry occurs twice: the order is fixed.
        for part, place in place_of:
            total.index_add_(-1, place, part.values[name])
        values[name] = total
    return Entries(ids, values)


def _combine(
    group: Group, parts: Sequence[Entries], owners: Sequence[range] | None = None
) -> Entries:
    """Add up the parts of all processes, by rank and then in the order of the parts.

    This process gives at least one, which may be empty. Each rank gets the sums of the
    entries that it owns; without owners all get all.
    """
    if group.size == 1:
        return add_up(parts)
    sent = [list(parts)]
    if owners is not None:
        cuts = [_places_by_owner(part.ids, owners) for part in parts]
        pairs = list(zip(parts, cuts, strict=True))
        sent = [[part.cut(cut[k]) for part, cut in pairs] for k in range(group.size)]

    def send(items: list[Tensor]) -> list[Tensor]:
        return group.gather(items[0]) if owners is None else group.exchange(items)

    device = parts[0].ids.device
    counts = [[part.ids.numel() for part in each] for each in sent]
    lengths = send([torch.tensor(each, device=device) for each in counts])
    ids = send([torch.cat([part.ids for part in each]) for each in sent])
    rows = send([torch.cat([_pack(part.values) for part in each]) for each in sent])
    columns = {name: leaf.shape[:-1] for name, leaf in parts[0].values.items()}
    received = []
    for length, own_ids, own_rows in zip(lengths, ids, rows, strict=True):
        cut = [torch.split(whole, length.tolist()) for whole in (own_ids, own_rows)]
        received += [
            Entries(some, _unpack(packed, columns))
            for some, packed in zip(*cut, strict=True)
        ]
    return add_up(received)


def _places_by_owner(ids: Tensor, owners: Sequence[range]) -> list[slice]:
    """Where among ascending ids those of each owner lie; owners ascend too."""
    total = owners[-1].stop
    if ids.numel():
        first, last = int(ids[0]), int(ids[-1])
        if first < 0 or last >= total or bool((ids[1:] <= ids[:-1]).any()):
            raise ValueError(
                f"ids from {first} to {last} given; expected ascending ones from 0 to "
                f"{total - 1}, each once"
            )
    ends = torch.tensor([own.stop for own in owners], device=ids.device)
    stops: list[int] = torch.searchsorted(ids, ends).tolist()
    return [slice(*pair) for pair in pairwise([0, *stops])]


def _pack(values: Tree) -> Tensor:
    """Join all numbers of an entry: ``[k, numbers]``, ready to be sent."""
    rows = [
        leaf.reshape(prod(leaf.shape[:-1]), leaf.shape[-1]) for leaf in values.values()
    ]
    return torch.cat(rows).T.contiguous()


def _unpack(packed: Tensor, columns: Columns) -> Tree:
    widths = [prod(axes) for axes in columns.values()]
    pieces = torch.split(packed.T.contiguous(), widths)
    return {
        name: piece.view(*axes, packed.shape[0])
        for (name, axes), piece in zip(columns.items(), pieces, strict=True)
    }


def save_table(table: EntryTable, folder: Path) -> dict[str, str]:
    """Write a table into a new folder, one ``.npy`` file for each column.

    All processes of the group take part, and the first one writes and gets a checksum
    of each file. In the end the folder is there as a whole or not at all. A checkpoint
    must never name a table that is half written: so a table is written under a new
    name, then the checkpoint that names it, and only then the old table is removed.

    Args:
        table: What is written.
        folder: Which is made, and may not exist.
    """
    checksums: dict[str, str] = {}
    begun = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        if table.group.is_first:
            begun.mkdir(parents=True)
        for name in table.columns:
            if table.group.is_first:
                path = _column_file(begun, name)
                with open(path, "xb") as file:
                    _write_column(table, name, file)
                checksums[name] = checksum(path, _WHAT)
            else:
                for _ in _chunks(table.total):
                    table.take(torch.empty(0, dtype=torch.int64), [name])
                    table.release()
        if table.group.is_first:
            os.rename(begun, folder)
        return checksums
    except OSError as error:
        raise InvalidInput(
            f"cannot write {folder} ({error.strerror}); expected a new folder in one "
            "that is writable"
        ) from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)


def _write_column(table: EntryTable, name: str, file: IO[bytes]) -> None:
    file.write(header_of(table.kind, (*table.columns[name], table.total)))
    place, size = file.tell(), table.kind.itemsize
    for own in _chunks(table.total):
        ids = torch.arange(own.start, own.stop)
        found = table.take(ids, [name])[name].cpu().reshape(-1, len(ids)).numpy()
        table.release()
        for row, numbers in enumerate(found):
            file.seek(place + (row * table.total + own.start) * size)
            file.write(numbers.tobytes())
    file.flush()
    os.fsync(file.fileno())


def check_table(
    table: EntryTable,
    folder: Path,
    checksums: Mapping[str, str],
    names: Sequence[str] | None = None,
) -> None:
    """Raise unless a folder holds what :func:`save_table` wrote, all of it numbers.

    Only this process reads; of the table it asks for some columns, all for ``None``.
    """
    expected = table.chosen(names)
    if checksums.keys() != expected.keys():
        raise InvalidInput(
            f"{folder} is said to hold {', '.join(sorted(checksums)) or 'nothing'}; "
            f"expected the columns {', '.join(sorted(expected))}"
        )
    for name in expected:
        path = _column_file(folder, name)
        if checksum(path, _WHAT) != checksums[name]:
            raise InvalidInput(
                f"{path} is damaged: its checksum is another one; expected {_WHAT}"
            )
        for own in _chunks(table.total):
            if not np.isfinite(table.saved(folder, name, own)).all():
                raise InvalidInput(f"{path} is not all finite; expected {_WHAT}")


def load_table(table: EntryTable, folder: Path) -> None:
    """Read what :func:`save_table` wrote, by any number of processes, into a table.

    All processes of the group take part, and only the first one reads.

    Args:
        table: What is filled.
        folder: Where it was saved.
    """
    for name in table.columns:
        for own in _chunks(table.total):
            parts = []
            if table.group.is_first:
                values = table.saved(folder, name, own).copy()
                ids = torch.arange(own.start, own.stop)
                parts = [Entries(ids, {name: torch.from_numpy(values)})]
            table.write(*table.gathered(parts, [name]))
            table.release()


def discard_tables(keep: Path) -> None:
    """Remove earlier tables, and what a killed process had begun to write.

    Next to ``table-12``, for example, any other ``table-...`` goes.

    Args:
        keep: Path of the table that stays.
    """
    stem = keep.name.rpartition("-")[0]
    # Numbers only: another stage may be called "table-something".
    for pattern in (f"{stem}-[0-9]*", f".{stem}-[0-9]*"):
        for path in keep.parent.glob(pattern):
            if path != keep:
                shutil.rmtree(path)


def _column_file(folder: Path, name: str) -> Path:
    return folder / f"{quote(name, safe='')}.npy"


def _chunks(total: int) -> list[slice]:
    return [slice(begin, min(begin + CHUNK, total)) for begin in range(0, total, CHUNK)]
