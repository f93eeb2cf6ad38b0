"""Batches are made ready several at once, each in a thread.

Drawing a batch and reading what is known of its edges are loops over arrays, which let
other Python threads run. On a GPU they are most of what a step on batches takes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

from gsebo.sparse.kernels.numba_compile import thread_limit

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``work`` of every item, on as many threads as kernels may use.

    Args:
        work: A function of its item alone; inside it everything runs on one thread.
        items: Any number of them.

    >>> side_by_side(abs, [-2, 1])
    [2, 1]
    """
    threads = min(thread_limit(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    with _threads(threads) as pool:
        return list(pool.map(_recorded_as_here(work), items))


def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``work`` of every item; the next few are worked on in the meantime.

    Args:
        work: As for ``side_by_side``.
        items: Any number of them.

    >>> list(ahead(abs, [-2, 1]))
    [2, 1]
    """
    threads = thread_limit()
    if threads <= 1:
        yield from map(work, items)
        return
    work = _recorded_as_here(work)
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
    given = torch.get_num_threads()
    pool = ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # Beside that of each thread there is one setting for all threads to come.
        torch.set_num_threads(given)


def _recorded_as_here(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The same work with autograd on or off as it is now: a new thread has it on."""
    return partial(_recorded, torch.is_grad_enabled(), work)


def _recorded(recorded: bool, work: Callable[[Item], Result], item: Item) -> Result:
    with torch.set_grad_enabled(recorded):
        return work(item)
