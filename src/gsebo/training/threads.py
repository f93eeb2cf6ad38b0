"""As many threads as the work is worth.

Waking a second thread for an operation of some ten microseconds costs more than it
saves, and where another process wants the core the waiting threads spin: a small fit
was seen to take ten times as long. So small fits run on one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gsebo.code_paths import is_reproducible, require_code_paths
from gsebo.sparse.numba_compile import kernel_threads, threads_given

# Not tuned: above the million at which one product breaks even
# (benchmarks/thresholds.py), because the small operations around it gain nothing.
_WORTH_THREADS = 4_000_000


@contextmanager
def alike_on_any_threads() -> Iterator[None]:
    """In reproducible mode, leave the threads to the kernels, which round alike on any.

    torch and MKL divide an operation by the number of threads, and sum or round the
    parts differently; on one thread there is nothing to divide. Otherwise this does
    nothing. It can decorate a function.
    """
    require_code_paths()
    if not is_reproducible():
        yield
        return
    given = torch.get_num_threads()
    with kernel_threads(threads_given()):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(given)


@contextmanager
def threads_for(multiplications: int, runs: int = 1) -> Iterator[None]:
    """Run on one thread if one propagation takes fewer multiplications than it pays.

    Several runs have all threads for themselves, one for each. But torch's operations,
    whose rounding may depend on the number of threads, get as many as for a single run,
    so that a run among others equals the run alone; in reproducible mode they get one.
    """
    before = torch.get_num_threads()
    given = threads_given() if is_reproducible() else before
    alone = given if multiplications >= _WORTH_THREADS else 1
    together = given if runs > 1 else alone
    torch.set_num_threads(1 if is_reproducible() else alone)
    try:
        with kernel_threads(together):
            yield
    finally:
        torch.set_num_threads(before)
