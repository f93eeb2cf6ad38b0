"""Sparse operators that can be differentiated any number of times, features, dropout.

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

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import Function

from gsebo.errors import InvalidInput
from gsebo.sparse.backend import SparseKernels
from gsebo.sparse.numba_cpu import NUMBA_KERNELS
from gsebo.sparse.pattern import CompletePattern, Pattern
from gsebo.sparse.random_bits import site_keys
from gsebo.sparse.reference import REFERENCE_KERNELS
from gsebo.sparse.symbol import Dropout, Propagate, Strengths, Symbol

# On features of Cora's size the two products break even here with 128 columns, and the
# sparse one is still a quarter faster with 16 (benchmarks/thresholds.py).
_SPARSE_BELOW = 0.25
_FORCE_REFERENCE: ContextVar[bool] = ContextVar("force_reference", default=False)


def kernels_for(tensor: Tensor) -> SparseKernels:
    """Return the kernels for the device and dtype of ``tensor``."""
    if _FORCE_REFERENCE.get() or tensor.dtype not in (torch.float32, torch.float64):
        return REFERENCE_KERNELS
    if tensor.device.type == "cpu":
        return NUMBA_KERNELS
    if tensor.device.type == "cuda" and has_triton():
        from gsebo.sparse.triton_cuda import TRITON_KERNELS

        return TRITON_KERNELS
    return REFERENCE_KERNELS


@cache
def has_triton() -> bool:
    """Asked when a tensor needs it: most machines without a GPU have no Triton."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def reference_kernels() -> Iterator[None]:
    """Run everything inside on the plain-torch kernels."""
    token = _FORCE_REFERENCE.set(True)
    try:
        yield
    finally:
        _FORCE_REFERENCE.reset(token)


def spmm(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """Multiply the sparse matrix ``(pattern, values)`` by ``x``.

    From ``[..., entries]`` and ``[..., columns, channels]`` to ``[..., rows,
    channels]``.

    Args:
        pattern: Where the entries of the matrix are.
        values: Of the entries.
        x: What it is multiplied by.
    """
    if isinstance(x, Symbol) and isinstance(values, Strengths):
        return x.then(Propagate, values.layer)
    _expect("values", values, -1, pattern.num_entries, "entries")
    _expect("x", x, -2, pattern.num_columns, "columns")
    _expect_one_dtype(values, x)
    if isinstance(pattern, CompletePattern):
        return pattern.matrix(values) @ x
    return _apply(_Product, "spmm", pattern, values, x)


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Entries of ``a @ b.T`` at the positions of ``pattern``.

    From ``[..., rows, channels]`` and ``[..., columns, channels]`` to ``[...,
    entries]``.

    Args:
        pattern: Which entries are computed.
        a: The left matrix.
        b: The right one, not transposed yet.
    """
    _expect("a", a, -2, pattern.num_rows, "rows")
    _expect("b", b, -2, pattern.num_columns, "columns")
    _expect("b", b, -1, a.shape[-1], "channels of a")
    _expect_one_dtype(a, b)
    if isinstance(pattern, CompletePattern):
        return pattern.values(a @ b.mT)
    return _apply(_Product, "sddmm", pattern, a, b)


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum ``values`` ``[..., entries]`` over each row: ``[..., rows]``.

    Args:
        pattern: Where the entries are.
        values: Of the entries.
    """
    _expect("values", values, -1, pattern.num_entries, "entries")
    if isinstance(pattern, CompletePattern):
        return pattern.matrix(values).sum(-1)
    return _apply(_Rows, "row_sum", pattern, values)


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Give each entry the value of its row: ``[..., rows]`` to ``[..., entries]``.

    Args:
        pattern: Where the entries are.
        x: A number for each row.
    """
    _expect("x", x, -1, pattern.num_rows, "rows")
    if isinstance(pattern, CompletePattern):
        return pattern.values(x.unsqueeze(-1).expand(*x.shape, pattern.num_columns))
    return _apply(_Rows, "row_expand", pattern, x)


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax of ``scores`` ``[..., entries]`` over the entries of each row.

    Args:
        pattern: Where the entries are.
        scores: Of the entries.
    """
    _expect("scores", scores, -1, pattern.num_entries, "entries")
    if isinstance(pattern, CompletePattern):
        return pattern.values(pattern.matrix(scores).softmax(-1))
    return _apply(_EdgeSoftmax, pattern, scores)


class _Product(Function):
    """``spmm`` of values and a matrix, or ``sddmm`` of two matrices."""

    @staticmethod
    def forward(
        ctx: Any, name: str, pattern: Pattern, left: Tensor, right: Tensor
    ) -> Tensor:
        ctx.name, ctx.pattern = name, pattern
        ctx.save_for_backward(left, right)
        own = 1 if name == "spmm" else 2
        batch = _broadcast(left.shape[:-own], right.shape[:-2])
        kernel = getattr(kernels_for(right), name)
        out = kernel(pattern, _flat(left, batch, own), _flat(right, batch, 2))
        return cast(Tensor, out.view(*batch, *out.shape[1:]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        of_values, (grad,) = ctx.name == "spmm", grads
        by_left = by_right = None
        if ctx.needs_input_grad[2]:
            found = (sddmm if of_values else spmm)(ctx.pattern, grad, right)
            by_left = _reduce(found, left)
        if ctx.needs_input_grad[3]:
            values, x = (left, grad) if of_values else (grad, left)
            by_right = _reduce(spmm(ctx.pattern.T, values, x), right)
        return None, None, by_left, by_right


class _Rows(Function):
    """``row_sum`` or ``row_expand``, each of which is the derivative of the other."""

    @staticmethod
    def forward(ctx: Any, name: str, pattern: Pattern, x: Tensor) -> Tensor:
        ctx.name, ctx.pattern = name, pattern
        out = getattr(kernels_for(x), name)(pattern, _flat(x, x.shape[:-1], 1))
        return cast(Tensor, out.view(*x.shape[:-1], out.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        back = row_expand if ctx.name == "row_sum" else row_sum
        return None, None, back(ctx.pattern, grads[0])


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
    same = gradient.shape == like.shape
    return gradient if same else gradient.sum_to_size(like.shape)


def _expect(name: str, tensor: Tensor, axis: int, size: int, what: str) -> None:
    if tensor.dim() < -axis or tensor.shape[axis] != size:
        raise InvalidInput(
            f"{name} has shape {tuple(tensor.shape)}, expected {size} ({what}) on axis "
            f"{axis}"
        )


def _expect_one_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise InvalidInput(f"got {a.dtype} and {b.dtype}, expected one dtype")


class SparseFeatures:
    """A constant feature matrix in sparse form; ``features @ weight`` is dense.

    Citation graphs hold 98 to 99 % zeros.

    Args:
        pattern: Rows are nodes, columns are features.
        values: Of the entries.
    """

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern = pattern
        self.values = values

    @property
    def shape(self) -> torch.Size:
        """Number of nodes and of features."""
        return torch.Size((self.pattern.num_rows, self.pattern.num_columns))

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __matmul__(self, weight: Tensor) -> Tensor:
        return spmm(self.pattern, self.values, weight)

    def to_dense(self) -> Tensor:
        """Return the ordinary matrix."""
        dense = self.values.new_zeros(self.shape)
        position = (self.pattern.row_of_entry, self.pattern.column_of_entry)
        return dense.index_put(position, self.values, accumulate=True)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"SparseFeatures({rows} x {columns}, stored={self.values.numel()})"


def make_features(
    x: Tensor, dtype: torch.dtype, device: torch.device | str
) -> Tensor | SparseFeatures:
    """Choose the cheaper form of ``x``, dense or ``sparse_csr``, on ``device``.

    Args:
        x: Features, dense or sparse.
        dtype: Of the numbers.
        device: Where they are to be.
    """
    if x.layout == torch.strided:
        stored = int(torch.count_nonzero(x))
    else:
        x = x.to_sparse().coalesce()
        stored = x.values().numel()
    if stored >= _SPARSE_BELOW * x.numel():
        # A copy of its own: memory that came from NumPy is aligned by chance, and a
        # matrix product may round differently with the alignment.
        return x.to_dense().to(device, dtype, copy=True).contiguous()
    coo = x.to_sparse().coalesce()
    rows, columns = coo.indices()
    pattern = Pattern.from_positions(rows, columns, x.shape[0], x.shape[1])
    return SparseFeatures(pattern.to(device), coo.values().to(device, dtype))


def features_as_stored(
    x: Tensor, dtype: torch.dtype, device: torch.device | str
) -> Tensor | SparseFeatures:
    """Keep the form of ``x``, dense or ``sparse_csr``, on ``device``."""
    if x.layout == torch.strided:
        return x.to(device, dtype).contiguous()
    (nodes, width), columns = x.shape, x.col_indices()
    index = Pattern.index_dtype(max(columns.numel(), nodes, width))
    each = torch.arange(columns.numel(), dtype=index)
    pattern = Pattern(nodes, width, x.crow_indices(), columns.to(index), each)
    return SparseFeatures(pattern.to(device), x.values().to(device, dtype))


Numbers = TypeVar("Numbers", bound=Tensor | SparseFeatures)


def unit_rows(matrix: Numbers) -> Numbers:
    """Divide every row by its length; rows of zeros stay zero.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(matrix, Tensor):
        squares = matrix.square().sum(-1, keepdim=True)
        return cast(Numbers, matrix * _inverse_root(squares))
    scale = _inverse_root(row_sum(matrix.pattern, matrix.values.square()))
    scaled = matrix.values * scale[matrix.pattern.row_of_entry]
    return cast(Numbers, SparseFeatures(matrix.pattern, scaled))


def _inverse_root(squares: Tensor) -> Tensor:
    return torch.where(squares > 0, squares, 1).rsqrt()


class Noise(NamedTuple):
    """Names the randomness of one training step; ``None`` in its place means none.

    Attributes:
        seed: Of the fit.
        step: Number of the training step.
    """

    seed: int
    step: int

    def keys(self, site: int) -> tuple[int, int]:
        """Two 32-bit keys for one place in the network."""
        keys = site_keys(self.seed, self.step, site)  # type: ignore[no-untyped-call]
        return cast(tuple[int, int], keys)


def dropout(x: Numbers, rate: float, noise: Noise | None, site: int) -> Numbers:
    """Zero each number with probability ``rate`` and scale the rest to keep the mean.

    The mask is a pure function of seed, step, ``site`` (the number of the place in the
    network) and position: nothing has to be stored to replay a training step, a run
    does not depend on the number of threads, and every device draws the same mask.
    Sparse features draw for their stored entries only: a zero stays zero either way.

    Args:
        x: Numbers, dense or sparse.
        rate: Probability of each to become zero, below 1.
        noise: Of the training step; ``None``: nothing is dropped.
        site: Number of the place in the network.
    """
    if noise is None or rate == 0.0:
        return x
    if isinstance(x, Symbol):
        return x.then(Dropout, site, rate)
    if isinstance(x, SparseFeatures):
        values = x.values * keep_mask(x.values, rate, noise, site)
        return cast(Numbers, SparseFeatures(x.pattern, values))
    return cast(Numbers, x * keep_mask(x, rate, noise, site))


def keep_mask(x: Tensor, rate: float, noise: Noise, site: int) -> Tensor:
    """Mask like ``x``: 0 with probability ``rate``, else ``1 / (1 - rate)``."""
    if not 0.0 <= rate < 1.0:
        raise InvalidInput(f"dropout rate is {rate}, expected a number in [0, 1)")
    threshold = max(round((1.0 - rate) * 2**32), 1)
    mask = kernels_for(x).keep_mask(x.numel(), threshold, noise.keys(site), x)
    return mask.view(x.shape)


def uniform(shape: tuple[int, ...], noise: Noise, site: int, like: Tensor) -> Tensor:
    """Draw numbers in the open interval (0, 1), the same on every device.

    ``like`` gives device and type; no two places share a ``site``.

    Args:
        shape: Of what is drawn.
        noise: Of the training step.
        site: Number of the place in the network.
        like: A tensor of the wanted device and type.

    >>> uniform((2,), Noise(0, 1), 3, torch.empty(0)) > 0
    tensor([True, True])
    """
    # The middles of 2^bits intervals are neither 0 nor 1. With one bit more, single
    # precision would round the largest up to 1.
    bits = 23 if like.dtype == torch.float32 else 32
    kernels = kernels_for(like)
    drawn = kernels.uniform(math.prod(shape), bits, noise.keys(site), like)
    return drawn.view(shape)


def normal(shape: tuple[int, ...], noise: Noise, site: int, like: Tensor) -> Tensor:
    """Draw standard normal numbers (Box and Muller), the same on every device.

    It takes two sites: ``site`` and the next.

    Args:
        shape: Of what is drawn.
        noise: Of the training step.
        site: Number of the place in the network.
        like: A tensor of the wanted device and type.

    >>> normal((2, 3), Noise(0, 1), 4, torch.empty(0)).shape
    torch.Size([2, 3])
    """
    radius = uniform(shape, noise, site, like).log().mul(-2).sqrt()
    angle = uniform(shape, noise, site + 1, like).mul(2 * math.pi)
    return radius * angle.cos()
