"""One attention step of a network, as a kernel call needs to know it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gsebo.sparse.kernels.numba_noise import Drop
from gsebo.sparse.pattern import Pattern


class AttentionStep(NamedTuple):
    """What an attention step reads; all of it stays where it is between runs.

    Attributes:
        pattern: Positions of the entries. Row ``i`` and column ``i`` are one node, and
            there may be more columns than rows.
        strength: Of the entries, ``[replicas, entries]``; it has no tangent.
        message: ``[replicas, columns, lanes, heads * channels]``.
        weight: Of the attention, ``[replicas, heads, channels, 2]``: target, source.
        tangent: Of the weight; not read where there is one lane.
        slope: Of the leaky ReLU where its argument is negative.
        drop: Dropout of the attention; its positions are those of the entries.
        whole_entries: Number of entries of the whole graph: entry ``p`` of it is at
            ``head * whole_entries + p`` of the mask.
    """

    pattern: Pattern
    strength: Tensor
    message: Tensor
    weight: Tensor
    tangent: Tensor
    slope: float
    drop: Drop | None
    whole_entries: int

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.weight.shape[1]

    @property
    def channels(self) -> int:
        """Channels of one head."""
        return self.weight.shape[2]

    @property
    def lanes(self) -> int:
        """1, or 2 with tangents."""
        return self.message.shape[2]
