"""Graphs between two types of nodes, mixed and multiplied without being put together.

Attention and sums of rows only give each channel a number per head, so that a product
with a mixture is a sum of products with what it is made of.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.nn.base import Features
from gsebo.sparse import Pattern, spmm

# Of similarities, and of the mixed graph where it is put together at last.
NUMBERS_AT_ONCE = 1 << 20


def compared(x: Tensor, heads: Tensor) -> Tensor:
    """Rows ``[nodes, heads * channels]`` whose products are ψ.

    A row of zeros is similar to nothing, itself included.
    """
    seen = x.unsqueeze(1) * heads
    squares = seen.square().sum(-1, keepdim=True) * len(heads)
    return (seen * torch.where(squares > 0, squares, 1).rsqrt()).flatten(1)


class SparseMatrix(NamedTuple):
    """A matrix of which only some positions are stored."""

    pattern: Pattern
    values: Tensor


Matrix = Tensor | SparseMatrix


def multiplied(matrix: Matrix, x: Tensor) -> Tensor:
    """The product of a matrix, stored either way, with ``x``."""
    return matrix @ x if isinstance(matrix, Tensor) else spmm(*matrix, x)


def turned(matrix: Matrix) -> Matrix:
    """The transposed matrix."""
    if isinstance(matrix, Tensor):
        return matrix.mT
    return SparseMatrix(matrix.pattern.T, matrix.values)


Factors = tuple[Matrix, ...]
"""A graph between heads and tails as the product of matrices."""


def product(factors: Factors, x: Tensor) -> Tensor:
    """Product with numbers of the tails, ``[tails, columns]``."""
    for factor in reversed(factors):
        x = multiplied(factor, x)
    return x


def turned_product(factors: Factors, x: Tensor) -> Tensor:
    """Product of the transposed with numbers of the heads, ``[heads, columns]``."""
    for factor in factors:
        x = multiplied(turned(factor), x)
    return x


def safe_inverse(sums: Tensor) -> Tensor:
    """One over each number; 0 where that is 0."""
    empty = sums == 0
    return sums.masked_fill(empty, 1).reciprocal().masked_fill(empty, 0)


class Channel(NamedTuple):
    """A graph between heads and tails, and what each of its rows counts."""

    factors: Factors
    scale: Tensor


class Mixture(NamedTuple):
    """A weighted sum of graphs, and the sums of its rows."""

    channels: list[Channel]
    sums: Tensor


def attended(mixtures: Sequence[Mixture], scores: Tensor) -> Mixture:
    """Ψ: every row is divided by its sum and weighed by a softmax of the scores.

    A row of zeros stays so, and others count no more for it.
    """
    channels, sums = list[Channel](), torch.zeros_like(mixtures[0].sums)
    for mixture, weight in zip(mixtures, scores.softmax(0).unbind(), strict=True):
        scale = weight * safe_inverse(mixture.sums)
        channels += [Channel(own, scale * each) for own, each in mixture.channels]
        sums = sums + weight * (mixture.sums > 0)
    return Mixture(channels, sums)


def similar_pairs(
    left: Features, right: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Rows and columns of the products from ``threshold`` on, block by block."""
    width = max(NUMBERS_AT_ONCE // max(left.shape[0], 1), 1)
    rows, columns = [], []
    for start in range(0, len(right), width):
        row, column = (
            (left @ right[start : start + width].mT >= threshold).nonzero().unbind(1)
        )
        rows.append(row)
        columns.append(column + start)
    return torch.cat(rows), torch.cat(columns)


def num_similar_pairs(left: Features, right: Tensor, threshold: float) -> int:
    """How many these are, without keeping them."""
    width = max(NUMBERS_AT_ONCE // max(left.shape[0], 1), 1)
    parts = (right[start : start + width] for start in range(0, len(right), width))
    return sum(int((left @ part.mT >= threshold).sum()) for part in parts)


class Relation(NamedTuple):
    """The edges from one type of nodes, or itself, to another."""

    name: str
    head_type: int
    tail_type: int
    head: Tensor  # Nodes of the type, [heads].
    tail: Tensor
    given: SparseMatrix  # A_r, heads by tails.


@final
class MixedGraph:
    """A = Σ_r (A'_r + A'_rᵀ), normalised, by products with it.

    Args:
        parts: Every relation with its A'_r.
        like: A number on the device and of the type of all others.
        compat: Divide columns by their sums, and have no self-loops.
    """

    def __init__(
        self, parts: Sequence[tuple[Relation, Mixture]], ones: Tensor, *, compat: bool
    ) -> None:
        self._parts, self._compat = parts, compat
        # A is symmetric, so that the sums of columns are those of rows.
        inverse = safe_inverse(self._sum(ones))
        self._scale = inverse if compat else inverse.sqrt()

    def _sum(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x) if self._compat else x
        for relation, (channels, _) in self._parts:
            heads, tails = x[relation.head], x[relation.tail]
            for factors, scale in channels:
                each = scale.unsqueeze(-1)
                forth = each * product(factors, tails)
                back = turned_product(factors, each * heads)
                out = out.index_add(0, relation.head, forth)
                out = out.index_add(0, relation.tail, back)
        return out

    def __matmul__(self, x: Tensor) -> Tensor:
        found = self._sum(self._scale * x)
        return found if self._compat else self._scale * found

    @property
    def total(self) -> Tensor:
        """Sum of the entries of all A'_r, which are not negative."""
        sums = [mixture.sums.sum() for _, mixture in self._parts]
        return torch.stack([self._scale.new_zeros(()), *sums]).sum()
