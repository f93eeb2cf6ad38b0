"""What the kernels of every kind of device can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor

from gsebo.sparse.pattern import Pattern

# A kernel with all that it reads and writes.
Call = Callable[[], Any]


class SparseKernels(ABC):
    """The kernels of one kind of device.

    They take batched operands: values ``[B, entries]`` and matrices
    ``[B, rows, channels]``, where a batch of one broadcasts against the other operand.
    """

    @abstractmethod
    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        """Sum ``values[entry] * x[column]`` over the entries of each row."""

    @abstractmethod
    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        """Dot product of ``a[row]`` and ``b[column]`` at each entry."""

    @abstractmethod
    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        """Sum of the values of each row."""

    @abstractmethod
    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        """Value of its row at each entry."""

    @abstractmethod
    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        """Softmax over the entries of each row."""

    @abstractmethod
    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        """Mask of ``size`` numbers: inverse keep rate where hash < threshold, else 0.

        Of each position the hash has 32 bits; the threshold is up to ``2**32``.
        """

    @abstractmethod
    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        """Numbers in (0, 1) from the first ``bits`` of the hash of each position."""
