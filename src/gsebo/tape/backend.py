"""The kernel calls that programs are made of, and which device has them.

Results are ``[replicas, rows, lanes, channels]``: lane 0 holds numbers and lane 1,
where there is one, their tangents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.operators import has_triton
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import Drop
from gsebo.sparse.symbol import Untraceable


class PointwiseStep(NamedTuple):
    """``dropout(activation(z + bias))``."""

    kind: str  # name of the activation
    z: Tensor
    bias: tuple[Tensor, Tensor] | None  # with its tangent, [replicas, channels] each
    drop: Drop | None


class AttentionStep(NamedTuple):
    """What an attention step reads; all of it stays where it is between runs.

    Row ``i`` and column ``i`` of the pattern are one node, and there may be more
    columns than rows. Entry ``p`` of the whole graph is at ``head * whole_entries + p``
    of the mask.
    """

    pattern: Pattern
    strength: Tensor  # [replicas, entries]; it has no tangent
    message: Tensor  # [replicas, columns, lanes, heads * channels]
    weight: Tensor  # [replicas, heads, channels, 2]: target, source
    tangent: Tensor  # of the weight; not read where there is one lane
    slope: float  # of the leaky ReLU where its argument is negative
    drop: Drop | None  # of the attention; its positions are those of the entries
    whole_entries: int

    @property
    def heads(self) -> int:
        return self.weight.shape[1]

    @property
    def channels(self) -> int:
        """Of one head."""
        return self.weight.shape[2]

    @property
    def lanes(self) -> int:
        return self.message.shape[2]


class Gradients(NamedTuple):
    """Where the gradient by a result is, and where to put those by its arguments.

    With two lanes, it is the tangents of the gradients by weight and strength that are
    added.
    """

    result: Tensor
    argument: Tensor  # with one lane less than the argument it is the tangent alone
    weight: Tensor | None  # to add to, if there is one
    strength: Tensor | None  # to add to, if anybody asks
    accumulate: bool  # whether to add to ``argument``


class StandardiseStep(NamedTuple):
    """``(z - mean) / √(variance + ε) * weight``.

    Over each row, or over all rows for each channel; then the result may be that of the
    first rows only.
    """

    kind: str  # "layer" or "batch"
    z: Tensor
    weight: tuple[Tensor, Tensor]  # with its tangent, [replicas, channels] each
    epsilon: float


class FeatureStep(NamedTuple):
    """Sparse features, of which some numbers may be dropped in every run."""

    pattern: Pattern  # row after row
    values: Tensor  # [entries]
    drop: Drop | None  # its positions are those of the entries
    replicas: int
    leading: Callable[[int], Pattern]  # the pattern of so many first rows


class FeatureKernels(ABC):
    """Products of features; results that have fewer rows are those of the first."""

    @abstractmethod
    def draw(self) -> list[Call]:
        """Calls that come before all others in a run."""

    @abstractmethod
    def drawn(self) -> list[Tensor]:
        """What these write, and nobody else."""

    @abstractmethod
    def times(self, pair: tuple[Tensor, Tensor], out: Tensor) -> list[Call]:
        """``out = features @ weight``, and with its tangent if there are two lanes."""

    @abstractmethod
    def turned_times(self, x: Tensor, out: Tensor) -> list[Call]:
        """``out = features.T @ x``, both ``[replicas, rows, channels]``."""


class StepKernels(ABC):
    """A step with the memory that its way back needs."""

    @abstractmethod
    def forward(self, out: Tensor) -> list[Call]:
        """Calls that compute the step."""

    @abstractmethod
    def back(self, gradients: Gradients) -> list[Call]:
        """Calls that pull a gradient back through the step."""


class TapeKernels(ABC):
    """The kernel calls of one kind of device.

    Every method binds its tensors once and returns calls without arguments.
    """

    @abstractmethod
    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
        """``out = (pattern, values) @ x``; both may be slices with whole rows."""

    @abstractmethod
    def dots(self, pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
        """Add ``a[row] . b[column]``, or with two lanes its tangent, to each entry."""

    @abstractmethod
    def widen(self, number: Tensor, tangent: Tensor, out: Tensor) -> Call:
        """Put numbers ``[replicas, rows, channels]`` and their tangents together."""

    @abstractmethod
    def features(self, step: FeatureStep) -> FeatureKernels:
        """Allocate what sparse features need."""

    @abstractmethod
    def pointwise(self, step: PointwiseStep, out: Tensor) -> Call:
        """Compute the step."""

    @abstractmethod
    def pointwise_back(
        self, step: PointwiseStep, out: Tensor, gradients: Gradients
    ) -> Call:
        """Pull a gradient back, which is overwritten and may be where it is put.

        ``out`` is the result of the step.
        """

    @abstractmethod
    def cross_entropy(
        self, logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
    ) -> Call:
        """``loss = scale * sum of the cross-entropies``, and its gradient."""

    @abstractmethod
    def zero(self, out: Tensor) -> Call:
        """``out = 0``."""

    @abstractmethod
    def scaled(self, x: Tensor, factor: float, out: Tensor, *, add: bool) -> Call:
        """``out = factor * x``, or ``out += factor * x``, of ``[.., .., .., ..]``."""

    @abstractmethod
    def matmul(self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Call:
        """``out = a @ b``, or ``out += a @ b``, for each replica."""

    @abstractmethod
    def penalty(
        self, weights: Tensor, factor: float, found: Tensor, out: Tensor, loss: Tensor
    ) -> Call:
        """``out = found + factor * weights``, ``loss += factor / 2 * weights²``.

        All are ``[replicas, ...]``, and a loss of no replica is left out.
        """

    @abstractmethod
    def attention(self, step: AttentionStep) -> StepKernels:
        """Allocate what an attention step needs."""

    @abstractmethod
    def standardise(self, step: StandardiseStep) -> StepKernels:
        """Allocate what a normalisation needs."""

    @abstractmethod
    def together(self, calls: list[Call], device: torch.device) -> Call:
        """One call that makes all of them, one after the other."""

    @abstractmethod
    def seconds(self, call: Call, device: torch.device, repeats: int) -> float:
        """The shortest time that a call takes, of so many."""


def tape_kernels_for(like: Tensor) -> TapeKernels:
    """Return the kernel calls for tensors like this.

    Raises:
        Untraceable: There are none for this device or this kind of number.
    """
    if like.dtype in (torch.float32, torch.float64):
        if like.device.type == "cpu":
            from gsebo.tape.cpu_kernels import NUMBA_TAPE

            return NUMBA_TAPE
        if like.device.type == "cuda" and has_triton():
            from gsebo.tape.cuda_kernels import TRITON_TAPE

            return TRITON_TAPE
    raise Untraceable(f"{like.dtype} on {like.device}")
