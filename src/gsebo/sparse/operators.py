"""Sparse operators that can be differentiated any number of times.

Values are ``[..., entries]``, matrices ``[..., rows, channels]``; leading axes
broadcast as in :func:`torch.matmul`. The derivative of each operator is made of these
operators again, so second order needs nothing new:

=================  ==========================================================
operator           derivative
=================  ==========================================================
``spmm``           ``sddmm`` (values), ``spmm`` on the transpose (matrix)
``sddmm``          ``spmm`` (left), ``spmm`` on the transpose (right)
``row_sum``        ``row_expand``
``row_expand``     ``row_sum``
``edge_softmax``   products with itself, ``row_sum`` and ``row_expand``
=================  ==========================================================

On a :class:`CompletePattern` they are matrix products, left to autograd.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from gsebo.errors import InvalidInput
from gsebo.sparse.complete import CompletePattern
from gsebo.sparse.kernels import kernels_for
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.symbol import Propagate, Strengths, Symbol


def spmm(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """Multiply the sparse matrix ``(pattern, values)`` by ``x``.

    Args:
        pattern: Positions of the entries.
        values: Their values, ``[..., entries]``.
        x: Dense matrix, ``[..., columns, channels]``.

    Returns:
        ``[..., rows, channels]``.
    """
    if isinstance(x, Symbol) and isinstance(values, Strengths):
        return x.then(Propagate(x.node.channels, x.node, values.layer))
    _expect("values", values, -1, pattern.num_entries, "entries")
    _expect("x", x, -2, pattern.num_columns, "columns")
    _expect_one_dtype(values, x)
    if isinstance(pattern, CompletePattern):
        return pattern.matrix(values) @ x
    return _apply(_Spmm, pattern, values, x)


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Entries of ``a @ b.T`` at the positions of ``pattern``.

    Args:
        pattern: Positions to compute.
        a: ``[..., rows, channels]``.
        b: ``[..., columns, channels]``.

    Returns:
        ``[..., entries]``.
    """
    _expect("a", a, -2, pattern.num_rows, "rows")
    _expect("b", b, -2, pattern.num_columns, "columns")
    _expect("b", b, -1, a.shape[-1], "channels of a")
    _expect_one_dtype(a, b)
    if isinstance(pattern, CompletePattern):
        return pattern.values(a @ b.mT)
    return _apply(_Sddmm, pattern, a, b)


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum ``values`` ``[..., entries]`` over each row: ``[..., rows]``."""
    _expect("values", values, -1, pattern.num_entries, "entries")
    if isinstance(pattern, CompletePattern):
        return pattern.matrix(values).sum(-1)
    return _apply(_RowSum, pattern, values)


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Give each entry the value of its row: ``[..., rows]`` to ``[..., entries]``."""
    _expect("x", x, -1, pattern.num_rows, "rows")
    if isinstance(pattern, CompletePattern):
        return pattern.values(x.unsqueeze(-1).expand(*x.shape, pattern.num_columns))
    return _apply(_RowExpand, pattern, x)


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax of ``scores`` ``[..., entries]`` over the entries of each row."""
    _expect("scores", scores, -1, pattern.num_entries, "entries")
    if isinstance(pattern, CompletePattern):
        return pattern.values(pattern.matrix(scores).softmax(-1))
    return _apply(_EdgeSoftmax, pattern, scores)


class _Spmm(Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values, x)
        batch = _broadcast(values.shape[:-1], x.shape[:-2])
        out = kernels_for(x).spmm(pattern, _flat(values, batch, 1), _flat(x, batch, 2))
        return out.view(*batch, *out.shape[-2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        _, values_needed, x_needed = ctx.needs_input_grad
        grad_values = grad_x = None
        if values_needed:
            grad_values = _reduce(sddmm(ctx.pattern, grads[0], x), values)
        if x_needed:
            grad_x = _reduce(spmm(ctx.pattern.T, values, grads[0]), x)
        return None, grad_values, grad_x


class _Sddmm(Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(a, b)
        batch = _broadcast(a.shape[:-2], b.shape[:-2])
        out = kernels_for(a).sddmm(pattern, _flat(a, batch, 2), _flat(b, batch, 2))
        return out.view(*batch, out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        _, a_needed, b_needed = ctx.needs_input_grad
        grad_a = grad_b = None
        if a_needed:
            grad_a = _reduce(spmm(ctx.pattern, grads[0], b), a)
        if b_needed:
            grad_b = _reduce(spmm(ctx.pattern.T, grads[0], a), b)
        return None, grad_a, grad_b


class _RowSum(Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, values: Tensor) -> Tensor:
        ctx.pattern = pattern
        out = kernels_for(values).row_sum(pattern, _flat(values, values.shape[:-1], 1))
        return out.view(*values.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, row_expand(ctx.pattern, grads[0])


class _RowExpand(Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        out = kernels_for(x).row_expand(pattern, _flat(x, x.shape[:-1], 1))
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, row_sum(ctx.pattern, grads[0])


class _EdgeSoftmax(Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, scores: Tensor) -> Tensor:
        ctx.pattern = pattern
        flat = _flat(scores, scores.shape[:-1], 1)
        out = kernels_for(scores).edge_softmax(pattern, flat).view(scores.shape)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (probability,) = ctx.saved_tensors
        weighted = probability * grads[0]
        total = row_expand(ctx.pattern, row_sum(ctx.pattern, weighted))
        return None, weighted - probability * total


def _apply(function: type[Function], *arguments: Any) -> Tensor:
    out = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return cast(Tensor, out)


def _broadcast(a: torch.Size, b: torch.Size) -> torch.Size:
    """Leading axes of the result, as in :func:`torch.matmul`."""
    if a == b or not b:
        return a
    if not a:
        return b
    try:
        batch = torch.broadcast_shapes(a, b)  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise InvalidInput(
            f"leading axes {tuple(a)} and {tuple(b)} do not broadcast"
        ) from None
    return cast(torch.Size, batch)


def _flat(tensor: Tensor, batch: torch.Size | tuple[int, ...], own: int) -> Tensor:
    """Fold the leading axes into one; a tensor without any becomes a batch of one."""
    lead = tensor.shape[: tensor.dim() - own]
    size = math.prod(batch)
    if lead.numel() == 1 and size > 0:
        return tensor.reshape(1, *tensor.shape[len(lead) :])
    tensor = tensor.expand(*batch, *tensor.shape[len(lead) :])
    return tensor.reshape(size, *tensor.shape[len(batch) :])


def _reduce(gradient: Tensor, like: Tensor) -> Tensor:
    """Sum over the axes along which ``like`` was broadcast."""
    return (
        gradient if gradient.shape == like.shape else gradient.sum_to_size(like.shape)
    )


def _expect(name: str, tensor: Tensor, axis: int, size: int, what: str) -> None:
    if tensor.dim() < -axis or tensor.shape[axis] != size:
        raise InvalidInput(
            f"{name} has shape {tuple(tensor.shape)}, expected {size} ({what}) on axis "
            f"{axis}"
        )


def _expect_one_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise InvalidInput(f"got {a.dtype} and {b.dtype}, expected one dtype")
