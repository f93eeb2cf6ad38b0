"""Which kernel calls serve a device."""

from importlib.util import find_spec
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
            from gsebo.sparse.kernels import numba_tape

            return numba_tape
        # Most machines without a GPU have no Triton.
        if like.device.type == "cuda" and find_spec("triton") is not None:
            from gsebo.sparse.kernels import triton_tape

            return triton_tape
    raise Untraceable(f"{like.dtype} on {like.device}")
