"""Where the entries of a sparse matrix are: rows, columns, and the transpose."""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import pad

from gsebo.errors import InvalidInput
from gsebo.sparse.types import EntryTypes

_INT32_MAX = 2**31 - 1


class Pattern:
    """Positions of the entries of a sparse matrix, in CSR, with its transpose.

    Values are kept apart, as a tensor ``[..., num_entries]`` in *entry order*: the
    order in which the positions were given. Both views read the same values, through
    ``entries``, so transposing a matrix costs nothing.

    ``indptr`` says where each row starts in ``columns`` and ``entries``: the column of
    each stored position, and the entry that it holds.

    Args:
        num_rows: Number of rows.
        num_columns: Number of columns.
        indptr: Where each row starts, and the end, ``[rows + 1]``.
        columns: Column of each stored position, row by row.
        entries: Entry at each stored position.

    >>> pattern = Pattern.from_positions(torch.tensor([1, 0]), torch.tensor([0, 1]), 2)
    >>> pattern.T.T is pattern
    True
    """

    # Of a graph with several types of nodes or edges, what each row and entry is.
    types: EntryTypes | None = None
    # The pattern whose transpose this is, as long as anyone uses that one.
    _origin: weakref.ref[Pattern] | None = None

    def __init__(
        self,
        num_rows: int,
        num_columns: int,
        indptr: Tensor,
        columns: Tensor,
        entries: Tensor,
    ) -> None:
        self.num_rows = num_rows
        self.num_columns = num_columns
        self.indptr = indptr
        self.columns = columns
        self.entries = entries

    @classmethod
    def from_positions(
        cls,
        rows: Tensor,
        columns: Tensor,
        num_rows: int,
        num_columns: int | None = None,
    ) -> Pattern:
        """Build the pattern of entries at ``(rows[k], columns[k])``.

        A position given twice is two entries, whose values add up.

        Raises:
            InvalidInput: A position lies outside the matrix.
        """
        num_columns = num_rows if num_columns is None else num_columns
        # Kernels read at these positions without a check of their own.
        rows = _inside("rows", rows, num_rows)
        columns = _inside("columns", columns, num_columns)
        order = _sorting(rows * num_columns + columns)
        index = cls.index_dtype(max(rows.numel(), num_rows, num_columns))
        stored, entries = columns[order].to(index), order.to(index)
        return cls(num_rows, num_columns, _starts(rows, num_rows), stored, entries)

    @staticmethod
    def index_dtype(largest: int) -> torch.dtype:
        """Type for numbers up to ``largest``: half the traffic where it suffices."""
        return torch.int32 if largest <= _INT32_MAX else torch.int64

    @property
    def num_entries(self) -> int:
        """Number of stored positions."""
        return self.columns.numel()

    @property
    def device(self) -> torch.device:
        """Device of the index tensors."""
        return self.columns.device

    @cached_property
    def rows(self) -> Tensor:
        """Row of each stored position, ``[num_entries]``."""
        each = torch.arange(self.num_rows, device=self.device, dtype=self.columns.dtype)
        return each.repeat_interleave(self.row_counts, output_size=self.columns.numel())

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``indptr``, ``columns`` and ``entries`` as numpy views, for CPU kernels."""
        return self.indptr.numpy(), self.columns.numpy(), self.entries.numpy()

    @cached_property
    def row_counts(self) -> Tensor:
        """Number of entries in each row, ``[num_rows]``."""
        return self.indptr.diff()

    @cached_property
    def row_of_entry(self) -> Tensor:
        """Row of each entry, in entry order, int64 ``[num_entries]``."""
        rows = torch.empty_like(self.columns, dtype=torch.int64)
        rows[self.entries.long()] = self.rows.long()
        return rows

    @cached_property
    def column_of_entry(self) -> Tensor:
        """Column of each entry, in entry order, int64 ``[num_entries]``."""
        return self.T.row_of_entry

    @property
    def T(self) -> Pattern:
        """The transposed pattern, over the same entries."""
        origin = None if self._origin is None else self._origin()
        return self._twin if origin is None else origin

    @cached_property
    def _twin(self) -> Pattern:
        return self._paired(self._transpose())

    def _transpose(self) -> Pattern:
        # By column alone: within one, a stable sort keeps the order of the rows.
        order = _sorting(self.columns)
        indptr = _starts(self.columns.long(), self.num_columns)
        stored, entries = self.rows[order], self.entries[order]
        return Pattern(self.num_columns, self.num_rows, indptr, stored, entries)

    def with_transpose(self, twin: Pattern) -> Pattern:
        """Return this pattern, told what its transpose is."""
        self.__dict__["_twin"] = self._paired(twin)
        return self

    def _paired(self, twin: Pattern) -> Pattern:
        # A reference that does not count: two that hold each other outlive their use
        # until the garbage collector comes, and batches make many such pairs.
        twin._origin = weakref.ref(self)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {name: at for name, at in self.__dict__.items() if name != "_origin"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_twin" in state:
            self._paired(state["_twin"])

    def to(self, device: torch.device | str) -> Pattern:
        """Return the pattern on ``device``."""
        if self.device == torch.device(device):
            return self
        index = (self.indptr, self.columns, self.entries)
        moved = (each.to(device) for each in index)
        other = Pattern(self.num_rows, self.num_columns, *moved)
        if self.types is not None:
            other.types = self.types.to(device)
        return other

    def __repr__(self) -> str:
        shape = f"{self.num_rows} x {self.num_columns}"
        return f"Pattern({shape}, num_entries={self.num_entries})"


def _starts(rows: Tensor, num_rows: int) -> Tensor:
    """Where each row begins, and the end of the last."""
    return pad(torch.bincount(rows, minlength=num_rows).cumsum(0), (1, 0))


def _sorting(keys: Tensor) -> Tensor:
    """The stable order that sorts ``keys``; sorted ones need no sort."""
    if bool((keys[1:] >= keys[:-1]).all()):
        return torch.arange(keys.numel(), device=keys.device)
    return torch.argsort(keys, stable=True)


def _inside(name: str, index: Tensor, size: int) -> Tensor:
    """Return ``index`` as int64, all of it in ``[0, size)``."""
    index = index.long()
    if index.numel() > 0:
        low, high = (int(end) for end in torch.aminmax(index))
        if low < 0 or high >= size:
            raise InvalidInput(
                f"{name} run from {low} to {high}, expected 0 to {size - 1}"
            )
    return index


def sorted_pattern(
    rows: Tensor, columns: Tensor, size: int, *, loops: bool, device: torch.device | str
) -> Pattern:
    """Build a square pattern with its transpose.

    It is that of :meth:`Pattern.from_positions`, for graphs that are looked at once:
    nothing is sorted. Positions, int64 on the CPU, are sorted by row and column, each
    once. With ``loops`` the diagonal, which is not among them, follows as ``size``
    further entries.

    >>> pattern = sorted_pattern(
    ...     torch.tensor([0]), torch.tensor([1]), 2, loops=True, device="cpu"
    ... )
    >>> pattern.columns.tolist(), pattern.entries.tolist()
    ([0, 1, 1], [1, 0, 2])
    """
    row, column = rows.numpy(), columns.numpy()
    order = np.arange(len(row))
    if loops:
        diagonal = np.arange(size)
        row = np.concatenate([row, diagonal])
        column = np.concatenate([column, diagonal])
        # Two runs that are sorted: this algorithm only merges them.
        order = np.argsort(row * size + column, kind="stable")
    indptr = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=size), out=indptr[1:])
    largest = max(len(row), size)
    index = np.int64 if Pattern.index_dtype(largest) == torch.int64 else np.int32
    stored, entries = column[order].astype(index), order.astype(index)
    turned = csr_matrix((entries, stored, indptr), shape=(size, size)).tocsc()
    turned_stored = turned.indices.astype(index, copy=False)
    views = (
        (indptr, stored, entries),
        (turned.indptr.astype(np.int64), turned_stored, turned.data),
    )
    pattern, twin = (
        Pattern(size, size, *(torch.from_numpy(each).to(device) for each in view))
        for view in views
    )
    pattern.with_transpose(twin)
    # They are known here, and all that asks for strengths asks for them.
    pattern.__dict__["row_of_entry"] = torch.from_numpy(row).to(device)
    pattern.__dict__["column_of_entry"] = torch.from_numpy(column).to(device)
    return pattern


def subpattern(pattern: Pattern, kept: Tensor) -> Pattern:
    """Leave out the entries that are not ``kept``; the others keep their order.

    The transpose comes with it, by the same linear pass. It is for training steps that
    see another graph each: nothing is sorted.

    >>> pattern = Pattern.from_positions(torch.tensor([1, 0]), torch.tensor([0, 1]), 2)
    >>> subpattern(pattern, torch.tensor([False, True])).row_of_entry.tolist()
    [0]
    """
    number = kept.cumsum(0) - 1
    part = _rows_of_kept(pattern, kept, number)
    return part.with_transpose(_rows_of_kept(pattern.T, kept, number))


def _rows_of_kept(pattern: Pattern, kept: Tensor, number: Tensor) -> Pattern:
    """The kept entries, row by row, under their new numbers."""
    stays = kept.index_select(0, pattern.entries)
    chosen = stays.nonzero().squeeze(-1)
    before = pad(stays.cumsum(0), (1, 0))
    entries = number.index_select(0, pattern.entries.index_select(0, chosen))
    return Pattern(
        pattern.num_rows,
        pattern.num_columns,
        before.index_select(0, pattern.indptr),
        pattern.columns.index_select(0, chosen),
        entries.to(pattern.entries.dtype),
    )


@final
class CompletePattern(Pattern):
    """All positions of a square matrix, row by row: entry ``i * size + j`` is (i, j).

    Products with it are matrix products. A network on a dense graph is the same network
    on this pattern, so that methods which weigh all n² pairs of nodes need no second
    version of any layer.

    Args:
        size: Number of rows, and of columns.
        device: Where results are computed.
        transposed: Whether values lie column by column.

    >>> CompletePattern(2, "cpu").matrix(torch.arange(4)).tolist()
    [[0, 1], [2, 3]]
    """

    def __init__(
        self, size: int, device: torch.device | str, *, transposed: bool = False
    ) -> None:
        self.num_rows = self.num_columns = size
        self._device = torch.device(device)
        self._transposed = transposed

    def matrix(self, values: Tensor) -> Tensor:
        """View values ``[..., entries]`` as ``[..., rows, columns]``."""
        square = values.view(*values.shape[:-1], self.num_rows, self.num_columns)
        return square.mT if self._transposed else square

    def values(self, matrix: Tensor) -> Tensor:
        """Lay a matrix ``[..., rows, columns]`` out as ``[..., entries]``."""
        return (matrix.mT if self._transposed else matrix).flatten(-2)

    @property
    def num_entries(self) -> int:
        return self.num_rows * self.num_columns

    @property
    def device(self) -> torch.device:
        return self._device

    @cached_property
    def indptr(self) -> Tensor:  # type: ignore[override]
        starts = torch.arange(self.num_rows + 1, device=self._device)
        return starts * self.num_columns

    @cached_property
    def columns(self) -> Tensor:  # type: ignore[override]
        each = torch.arange(self.num_columns, device=self._device)
        return each.repeat(self.num_rows)

    @cached_property
    def entries(self) -> Tensor:  # type: ignore[override]
        every = torch.arange(self.num_entries, device=self._device)
        return self.matrix(every).flatten()

    def _transpose(self) -> CompletePattern:
        return CompletePattern(
            self.num_rows, self._device, transposed=not self._transposed
        )

    def to(self, device: torch.device | str) -> CompletePattern:
        return CompletePattern(self.num_rows, device, transposed=self._transposed)
