"""One file per device; :func:`kernels_for` picks the one that serves a tensor."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from gsebo.sparse.kernels import numba_cpu, reference

_FORCE_REFERENCE: ContextVar[bool] = ContextVar("force_reference", default=False)


def kernels_for(tensor: Tensor) -> ModuleType:
    """Return the kernels for the device and dtype of ``tensor``."""
    if _FORCE_REFERENCE.get() or tensor.dtype not in (torch.float32, torch.float64):
        return reference
    if tensor.device.type == "cpu":
        return numba_cpu
    return _triton_or_reference() if tensor.device.type == "cuda" else reference


@cache
def _triton_or_reference() -> ModuleType:
    # Imported when a tensor needs it: most machines without a GPU have no Triton.
    try:
        import triton  # noqa: F401
    except ImportError:
        return reference
    from gsebo.sparse.kernels import triton_cuda

    return triton_cuda


@contextmanager
def reference_kernels() -> Iterator[None]:
    """Run everything inside on the plain-torch kernels."""
    token = _FORCE_REFERENCE.set(True)
    try:
        yield
    finally:
        _FORCE_REFERENCE.reset(token)
