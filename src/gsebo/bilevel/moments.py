"""What Adam remembers, and the plain numbers of one of its steps."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class Moments(NamedTuple):
    """First and second moment of the gradients, or their cotangents."""

    mean: Tensor
    square: Tensor


class Scales(NamedTuple):
    """The plain numbers of one step; the bias corrections depend on its number.

    Attributes:
        first: ``b1``.
        second: ``b2``.
        new_first: ``1 - b1``, not to be rounded twice.
        new_second: ``1 - b2``.
        step_size: ``s = lr / (1 - b1^t)``.
        root: ``c = sqrt(1 - b2^t)``.
        eps: Added to the root.
    """

    first: float
    second: float
    new_first: float
    new_second: float
    step_size: float
    root: float
    eps: float

    @classmethod
    def at(
        cls, count: int, rate: float, betas: tuple[float, float], eps: float
    ) -> Scales:
        """The numbers of step ``count``, from 1."""
        first, second = betas
        return cls(
            first,
            second,
            1 - first,
            1 - second,
            rate / (1 - first**count),
            math.sqrt(1 - second**count),
            eps,
        )
