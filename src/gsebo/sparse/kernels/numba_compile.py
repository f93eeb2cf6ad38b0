"""Compile a kernel serially and in parallel, and run whichever pays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import torch
from numba import config, njit, set_num_threads

# Two threads break even with one at about a million multiplications and take twice as
# long at a fifth of it (benchmarks/thresholds.py).
_PARALLEL_WORK = 1_000_000
_PARALLEL_LOCK = Lock()


# One setting for both libraries: whoever limits torch's threads means these too, unless
# it is said otherwise.
_THREADS: ContextVar[int | None] = ContextVar("kernel_threads", default=None)


@contextmanager
def kernel_threads(number: int) -> Iterator[None]:
    """Run the kernels inside on up to so many threads, whatever torch's setting.

    Unlike torch's operations, the kernels give the same numbers on any number of
    threads.
    """
    token = _THREADS.set(number)
    try:
        yield
    finally:
        _THREADS.reset(token)


def threads_given() -> int:
    """How many threads there are for kernels, as far as anybody said."""
    return _THREADS.get() or torch.get_num_threads()


def thread_limit() -> int:
    """How many threads a kernel may use."""
    limit: int = config.NUMBA_NUM_THREADS
    return min(threads_given(), limit)


class Variants(NamedTuple):
    """One kernel, compiled twice."""

    serial: Any
    parallel: Any


def compile_twice(
    kernel: Any, suffix: str = "", *, fastmath: Any = False, **constants: Any
) -> Variants:
    """Compile a loop over ``prange`` once as it is and once for many threads.

    Args:
        kernel: The loop.
        suffix: Told apart from the same loop with other constants.
        fastmath: Liberties that the compiler may take.
        constants: Further global names of the loop.
    """
    options = {"cache": True, "nogil": True, "fastmath": fastmath}
    # The cache on disk tells functions apart by name and not by options or globals:
    # under one name, whichever was compiled first would be loaded for all.
    serial = _renamed(kernel, kernel.__name__ + suffix, constants)
    parallel = _renamed(kernel, f"{kernel.__name__}{suffix}_parallel", constants)
    return Variants(njit(**options)(serial), njit(parallel=True, **options)(parallel))


def _renamed(kernel: Any, name: str, constants: dict[str, Any]) -> Any:
    twin = FunctionType(kernel.__code__, {**kernel.__globals__, **constants}, name)
    twin.__qualname__ = name
    return twin


def run_kernel(kernel: Variants, work: int, *arguments: Any) -> None:
    """Run a kernel on as many threads as its work is worth.

    Args:
        kernel: What to run.
        work: Roughly how many multiplications it takes.
        arguments: Of the kernel.
    """
    threads = thread_limit()
    if work <= _PARALLEL_WORK or threads == 1:
        kernel.serial(*arguments)
    # One parallel kernel at a time: numba's fallback thread pool ends the process when
    # two Python threads enter it, and a second one would find no idle core anyway.
    elif _PARALLEL_LOCK.acquire(blocking=False):
        try:
            set_num_threads(threads)
            kernel.parallel(*arguments)
        finally:
            _PARALLEL_LOCK.release()
    else:
        kernel.serial(*arguments)


def bind_kernel(kernel: Variants, work: int, *arguments: Any) -> Callable[[], None]:
    """Return the call that runs a kernel on these arguments, as ``run_kernel`` does."""
    if work <= _PARALLEL_WORK:
        return partial(kernel.serial, *arguments)
    return partial(run_kernel, kernel, work, *arguments)
