"""Batches are made ready several at once, each in a thread.

Drawing a batch and reading what is known of its edges are loops over arrays, which let
other Python threads run. On a GPU they are most of what a step on batches takes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from gsebo.sparse.numba_compile import thread_limit

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Return ``work`` of every item, on as many threads as kernels may use.

    It is a function of its item alone; inside it everything runs on one thread.

    >>> map_in_threads(abs, [-2, 1])
    [2, 1]
    """
    threads = min(thread_limit(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    with _threads(threads) as pool:
        return list(pool.map(work, items))


def prefetch(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``work`` of every item; the next few are worked on in the meantime.

    >>> list(prefetch(abs, [-2, 1]))
    [2, 1]
    """
    threads = thread_limit()
    if threads <= 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    with _threads(threads) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _threads(number: int) -> Iterator[ThreadPoolExecutor]:
    given, recorded = torch.get_num_threads(), torch.is_grad_enabled()

    def start() -> None:
        torch.set_num_threads(1)
        # Autograd is on or off as it is here: a new thread has it on.
        torch.set_grad_enabled(recorded)

    pool = ThreadPoolExecutor(number, initializer=start)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # Beside that of each thread there is one setting for all threads to come.
        torch.set_num_threads(given)
