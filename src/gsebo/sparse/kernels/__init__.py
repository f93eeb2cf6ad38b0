"""One file per device; :func:`kernels_for` picks the one that serves a tensor."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from gsebo.sparse.kernels.backend import SparseKernels
from gsebo.sparse.kernels.numba_cpu import NUMBA_KERNELS
from gsebo.sparse.kernels.reference import REFERENCE_KERNELS

_FORCE_REFERENCE: ContextVar[bool] = ContextVar("force_reference", default=False)


def kernels_for(tensor: Tensor) -> SparseKernels:
    """Return the kernels for the device and dtype of ``tensor``."""
    if _FORCE_REFERENCE.get() or tensor.dtype not in (torch.float32, torch.float64):
        return REFERENCE_KERNELS
    if tensor.device.type == "cpu":
        return NUMBA_KERNELS
    return _triton_or_reference() if tensor.device.type == "cuda" else REFERENCE_KERNELS


@cache
def _triton_or_reference() -> SparseKernels:
    # Imported when a tensor needs it: most machines without a GPU have no Triton.
    try:
        import triton  # noqa: F401
    except ImportError:
        return REFERENCE_KERNELS
    from gsebo.sparse.kernels.triton_cuda import TRITON_KERNELS

    return TRITON_KERNELS


@contextmanager
def reference_kernels() -> Iterator[None]:
    """Run everything inside on the plain-torch kernels."""
    token = _FORCE_REFERENCE.set(True)
    try:
        yield
    finally:
        _FORCE_REFERENCE.reset(token)
