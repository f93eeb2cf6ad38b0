"""Compile a kernel serially and in parallel, and run whichever pays."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
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


def compile_twice(kernel: Any, *, fastmath: Any = False, **constants: Any) -> Variants:
    """Compile a loop over ``prange`` once as it is and once for many threads."""
    constants["fastmath"] = fastmath
    serial = compile_kernel(kernel, **constants)
    return Variants(serial, compile_kernel(kernel, parallel=True, **constants))


def compile_kernel(
    kernel: Any, *, parallel: bool = False, fastmath: Any = False, **constants: Any
) -> Any:
    """Compile a function, or load what was compiled of the same sources before.

    numba's cache on disk tells functions apart by name, and watches only the file of
    the function itself. So the name says what else it depends on: options, constants
    (further global names of the function), and the files of all that it calls.
    """
    names = {**kernel.__globals__, **constants}
    twin = FunctionType(kernel.__code__, names, kernel.__name__)
    liberties = sorted(fastmath) if isinstance(fastmath, set) else fastmath
    parts = {f"{parallel} {liberties}"}
    _collect(twin, parts)
    key = sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]
    twin.__name__ = twin.__qualname__ = f"{kernel.__name__}_{key}"
    return njit(cache=True, nogil=True, parallel=parallel, fastmath=fastmath)(twin)


def _collect(function: Any, parts: set[str]) -> None:
    """Add what the compiled form of a function depends on."""
    code = function.__code__
    names, cells = function.__globals__, function.__closure__ or ()
    values = {name: names[name] for name in _names(code) if name in names}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        values[name] = cell.cell_contents
    plain = bool | int | float | str | np.generic
    constants = sorted(each for each in values.items() if isinstance(each[1], plain))
    own = f"{code.co_qualname} {constants} {_digest(code.co_filename)}"
    if own in parts:
        return
    parts.add(own)
    for value in values.values():
        # What numba has compiled, and what writes instructions itself.
        called = getattr(value, "py_func", getattr(value, "_defn", value))
        if isinstance(called, FunctionType):
            _collect(called, parts)


def _names(code: CodeType) -> set[str]:
    """All names that a function and those inside of it ask for."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


@cache
def _digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()


def pays(work: int) -> bool:
    """Whether so many multiplications are worth several threads."""
    return work > _PARALLEL_WORK


@contextmanager
def many_threads() -> Iterator[bool]:
    """Whether kernels inside may use several threads."""
    threads = thread_limit()
    # One parallel kernel at a time: numba's fallback thread pool ends the process when
    # two Python threads enter it, and a second one would find no idle core anyway.
    granted = threads > 1 and _PARALLEL_LOCK.acquire(blocking=False)
    try:
        if granted:
            set_num_threads(threads)
        yield granted
    finally:
        if granted:
            _PARALLEL_LOCK.release()


def run_kernel(kernel: Variants, work: int, *arguments: Any) -> None:
    """Run a kernel on as many threads as its work, in multiplications, is worth."""
    if not pays(work):
        kernel.serial(*arguments)
        return
    with many_threads() as granted:
        (kernel.parallel if granted else kernel.serial)(*arguments)
