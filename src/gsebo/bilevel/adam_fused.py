"""Which fused Adam serves some tensors: on a small network it is most of the gain."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.bilevel import adam_cpu
from gsebo.bilevel.moments import Moments, Scales

Step = Callable[[Tensor, Tensor, Moments, Scales], tuple[Tensor, Moments]]
StepBack = Callable[
    [Tensor, Tensor, Moments, Moments | None, Scales], tuple[Tensor, Moments]
]


class FusedAdam(NamedTuple):
    """A step and its adjoint, in one pass over memory each."""

    step: Step
    step_back: StepBack


def fused_adam(*tensors: Tensor) -> FusedAdam | None:
    """What can be used on these tensors; None if only plain operations can."""
    plain = all(
        tensor.dtype in (torch.float32, torch.float64)
        and tensor.is_contiguous()
        and tensor.device == tensors[0].device
        and not (tensor.requires_grad and torch.is_grad_enabled())
        for tensor in tensors
    )
    return _on(tensors[0].device.type) if plain else None


@cache
def _on(device: str) -> FusedAdam | None:
    if device == "cpu":
        return FusedAdam(adam_cpu.step, adam_cpu.step_back)
    if device == "cuda" and find_spec("triton") is not None:
        from gsebo.bilevel import adam_triton

        return FusedAdam(adam_triton.step, adam_triton.step_back)
    return None
