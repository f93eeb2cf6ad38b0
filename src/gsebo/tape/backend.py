"""Which kernel calls serve a device."""

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from gsebo.sparse.symbol import Untraceable


def tape_kernels_for(like: Tensor) -> ModuleType:
    """Return the module whose functions bind kernel calls for tensors like this.

    Raises:
        Untraceable: There are none for this device or this kind of number.
    """
    if like.dtype in (torch.float32, torch.float64):
        if like.device.type == "cpu":
            from gsebo.tape.cpu import kernels as numba_tape

            return numba_tape
        if like.device.type == "cuda" and _has_triton():
            from gsebo.tape.cuda import kernels as triton_tape

            return triton_tape
    raise Untraceable(f"{like.dtype} on {like.device}")


@cache
def _has_triton() -> bool:
    # Asked when a tensor needs it: most machines without a GPU have no Triton.
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
