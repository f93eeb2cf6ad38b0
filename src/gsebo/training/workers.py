"""Independent runs on all cores: each worker has its own, nobody waits for anybody.

Threads that share every kernel have to meet after each of them, thousands of times a
second, and where another process takes a core all wait for it. Workers that train
different runs meet once, at the end. They are threads, because the kernels do not hold
Python's lock.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event
from typing import TypeVar

from gsebo.sparse.kernels.numba_compile import kernel_threads

Item = TypeVar("Item")
Work = Callable[[list[Item], Callable[[], bool]], None]
"""Does what is to be done for some items, as long as nobody says to stop."""


def share_out(items: Sequence[Item], workers: int, work: Work[Item]) -> None:
    """Deal ``items`` out to workers and wait for all of them.

    Args:
        items: What there is to do.
        workers: How many there are at most.
        work: Told its items and how to ask whether to stop early.
    """
    hands = [list(items[place::workers]) for place in range(min(workers, len(items)))]
    if len(hands) == 1:
        work(hands[0], lambda: False)
        return
    stop = Event()

    def one(hand: list[Item]) -> None:
        with kernel_threads(1):
            work(hand, stop.is_set)

    with ThreadPoolExecutor(len(hands)) as pool:
        # A thread begins without the settings of the one that started it.
        jobs = [pool.submit(copy_context().run, one, hand) for hand in hands]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            stop.set()
            raise
