"""As many threads as the work is worth.

Waking a second thread for an operation of some ten microseconds costs more than it
saves, and where another process wants the core the waiting threads spin: a small fit
was seen to take ten times as long. So small fits run on one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Not tuned: above the million at which one product breaks even
# (benchmarks/thresholds.py), because the small operations around it gain nothing.
_WORTH_THREADS = 4_000_000


@contextmanager
def threads_for(multiplications: int) -> Iterator[None]:
    """Run on one thread if one propagation takes fewer multiplications than it pays."""
    given = torch.get_num_threads()
    if multiplications >= _WORTH_THREADS or given == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(given)
