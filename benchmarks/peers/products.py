"""Sparse products in plain torch that can be differentiated twice.

On a CPU ``torch.embedding_bag`` is faster than torch's product of sparse tensors, and
many times faster than to gather and to scatter. It has no second derivative, so that
each operator here says its first one by these operators again.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function


@final
class Places:
    """Where a matrix has entries, which keep the order that they are given in.

    Args:
        rows: Row of each entry.
        columns: Column of each entry.
        num_rows: Number of rows.
        num_columns: Number of columns.
        like: Any tensor of the type that values will have.
    """

    def __init__(
        self,
        rows: Tensor,
        columns: Tensor,
        num_rows: int,
        num_columns: int,
        like: Tensor,
    ) -> None:
        self.rows, self.columns = rows, columns
        self.shape = num_rows, num_columns
        self.order = torch.argsort(rows, stable=True)
        self.is_ordered = bool((rows[1:] >= rows[:-1]).all())
        self._back = torch.argsort(self.order)
        self.offsets = _offsets(rows, num_rows)
        self._columns = columns[self.order]
        self.order_by_column = torch.argsort(columns, stable=True)
        self.offsets_of_columns = _offsets(columns, num_columns)
        self._rows = rows[self.order_by_column]
        with warnings.catch_warnings():
            # That torch calls its sparse tensors a beta is known.
            warnings.simplefilter("ignore", UserWarning)
            self._zeros = torch.sparse_csr_tensor(
                self.offsets,
                self._columns,
                like.new_zeros(len(rows)),
                size=self.shape,
                check_invariants=False,
            )

    def multiplied(self, values: Tensor, x: Tensor, transposed: bool) -> Tensor:
        """The matrix with these values, or its transpose, times ``x``."""
        if transposed:
            values = values.index_select(0, self.order_by_column)
            return _bags(x, self._rows, self.offsets_of_columns, values)
        if not self.is_ordered:
            values = values.index_select(0, self.order)
        return _bags(x, self._columns, self.offsets, values)

    def sampled(self, left: Tensor, right: Tensor) -> Tensor:
        """Entries of ``left @ right.T``."""
        found = torch.sparse.sampled_addmm(self._zeros, left, right.T, beta=0.0)
        values: Tensor = found.values()
        return values if self.is_ordered else values.index_select(0, self._back)

    def collected(self, x: Tensor, by_column: bool) -> Tensor:
        """Sums over the entries ``[entries, channels]`` of each row or column."""
        if by_column:
            return _bags(x, self.order_by_column, self.offsets_of_columns)
        return _bags(x, self.order, self.offsets)


@final
class Constant:
    """A matrix whose values nobody differentiates by.

    Args:
        places: Where it has entries, row by row.
        values: One for each.
    """

    def __init__(self, places: Places, values: Tensor) -> None:
        self._places, self._values = places, values
        # Once, for the gradient and for its own gradient.
        self._by_column = values.index_select(0, places.order_by_column)

    def multiplied(self, x: Tensor, transposed: bool) -> Tensor:
        """The matrix, or its transpose, times ``x``."""
        here = self._places
        if transposed:
            return _bags(x, here._rows, here.offsets_of_columns, self._by_column)
        return _bags(x, here._columns, here.offsets, self._values)


def multiply(
    places: Places, values: Tensor, x: Tensor, *, weights_in_values: bool
) -> Tensor:
    """The matrix with these values times ``x``.

    Args:
        places: Where the matrix has entries.
        values: One for each.
        x: ``[columns, channels]``.
        weights_in_values: Whether the values depend on weights; else they are strengths
            alone.
    """
    return _Multiply.apply(places, values, x, False, weights_in_values)


def project(matrix: Constant, x: Tensor) -> Tensor:
    """A constant matrix times ``x``."""
    return _Project.apply(matrix, x, False)


def expand(places: Places, x: Tensor, *, by_column: bool = False) -> Tensor:
    """For each entry what ``x`` has for its row, or for its column."""
    return _Expand.apply(places, x, by_column)


def softmax(places: Places, x: Tensor) -> Tensor:
    """Softmax over the entries of each row, for ``[entries, channels]``."""
    return _Softmax.apply(places, x)


_strength_wanted = True


@contextmanager
def weights_only() -> Iterator[None]:
    """Compute no derivative by strengths: autograd asks for all that it might need."""
    global _strength_wanted
    _strength_wanted = False
    try:
        yield
    finally:
        _strength_wanted = True


@final
class _Multiply(Function):
    @staticmethod
    def forward(
        ctx: Any,
        places: Places,
        values: Tensor,
        x: Tensor,
        transposed: bool,
        weights_in_values: bool,
    ) -> Tensor:
        ctx.places, ctx.transposed = places, transposed
        ctx.weights_in_values = weights_in_values
        ctx.save_for_backward(values, x)
        return places.multiplied(values, x, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        by_values = by_x = None
        wanted = ctx.weights_in_values or _strength_wanted
        if ctx.needs_input_grad[1] and wanted:
            left, right = (x, grad) if ctx.transposed else (grad, x)
            by_values = _Sample.apply(ctx.places, left, right)
        if ctx.needs_input_grad[2]:
            by_x = _Multiply.apply(
                ctx.places, values, grad, not ctx.transposed, ctx.weights_in_values
            )
        return None, by_values, by_x, None, None


@final
class _Sample(Function):
    @staticmethod
    def forward(ctx: Any, places: Places, left: Tensor, right: Tensor) -> Tensor:
        ctx.places = places
        ctx.save_for_backward(left, right)
        return places.sampled(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        by_left = by_right = None
        if ctx.needs_input_grad[1]:
            by_left = _Multiply.apply(ctx.places, grad, right, False, True)
        if ctx.needs_input_grad[2]:
            by_right = _Multiply.apply(ctx.places, grad, left, True, True)
        return None, by_left, by_right


@final
class _Project(Function):
    @staticmethod
    def forward(ctx: Any, matrix: Constant, x: Tensor, transposed: bool) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return matrix.multiplied(x, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _Project.apply(ctx.matrix, grad, not ctx.transposed), None


@final
class _Expand(Function):
    @staticmethod
    def forward(ctx: Any, places: Places, x: Tensor, by_column: bool) -> Tensor:
        ctx.places, ctx.by_column = places, by_column
        return x.index_select(0, places.columns if by_column else places.rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _Collect.apply(ctx.places, grad, ctx.by_column), None


@final
class _Collect(Function):
    @staticmethod
    def forward(ctx: Any, places: Places, x: Tensor, by_column: bool) -> Tensor:
        ctx.places, ctx.by_column = places, by_column
        return places.collected(x, by_column)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _Expand.apply(ctx.places, grad, ctx.by_column), None


@final
class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, places: Places, x: Tensor) -> Tensor:
        ctx.places = places
        largest = torch.segment_reduce(x, "max", offsets=places.offsets, unsafe=True)
        shifted = x.sub(largest.index_select(0, places.rows)).exp_()
        total = places.collected(shifted, by_column=False)
        share = shifted.div_(total.index_select(0, places.rows))
        ctx.save_for_backward(share)
        return share

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (share,) = ctx.saved_tensors
        weighed = share * grad
        total = _Expand.apply(
            ctx.places, _Collect.apply(ctx.places, weighed, False), False
        )
        return None, torch.addcmul(weighed, share, total, value=-1)


def _offsets(sorted_or_not: Tensor, number: int) -> Tensor:
    """Where each of the groups begins once they are sorted, and where the last ends."""
    counts = torch.bincount(sorted_or_not, minlength=number)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _bags(
    x: Tensor, members: Tensor, offsets: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sums of rows of ``x``, the members of each bag, with weights if there are any."""
    # Tensors that are to be differentiated would take a slower way.
    x = x.detach().contiguous()
    weights = None if weights is None else weights.detach()
    found = torch.embedding_bag(
        x, members, offsets, False, 0, False, weights, include_last_offset=True
    )
    total: Tensor = found[0]
    return total
