"""Dropout at one place of a network, as a kernel call needs to know it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Drop(NamedTuple):
    """Where the randomness of one dropout comes from.

    Seeds and step are tensors, so that a call that was bound once draws new masks when
    they change.

    Attributes:
        seeds: One seed per replica, int64 ``[replicas]``.
        step: Number of the training step, int64 ``[1]``.
        site: Number of the place in the network.
        rate: Probability of dropping.
        positions: Number of each row (or stored value) in the whole graph, int64.
    """

    seeds: Tensor
    step: Tensor
    site: int
    rate: float
    positions: Tensor

    @classmethod
    def none(cls, replicas: int, rows: int) -> Drop:
        """Something to hand over where nothing is dropped."""
        empty = torch.zeros(replicas, dtype=torch.int64)
        return cls(empty, empty[:1], 0, 0.0, torch.zeros(rows, dtype=torch.int64))

    @property
    def threshold(self) -> int:
        """A number is kept if its 32 random bits are below."""
        return max(round((1.0 - self.rate) * 2**32), 1)
