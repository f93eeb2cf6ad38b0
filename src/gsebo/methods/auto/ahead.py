"""Jobs that will probably be asked for are begun on other cores before they are.

What comes of a job depends on nothing but its key. So it does not matter which thread
does it, when, or whether anybody asks for it in the end: whoever decides by the results
decides the same on any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from threading import Event
from typing import Generic, NamedTuple, TypeVar, final

from gsebo.methods.run import one_core_each

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Work = Callable[[Key, Callable[[], bool]], Result]
"""Does the job of a key; may ask now and then whether it is no longer wanted."""


class NoLongerWanted(Exception):
    """Ends a job whose result nobody will ask for."""


class _Begun(NamedTuple, Generic[Result]):
    future: Future[Result]
    unwanted: Event


@final
class Ahead(Generic[Key, Result]):
    """Does jobs when they are asked for, or before that on other cores.

    Args:
        work: Does the job of a key.
    """

    def __init__(self, work: Work[Key, Result]) -> None:
        self._work = work
        self._found: dict[Key, Result] = {}
        self._begun: dict[Key, _Begun[Result]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._open = ExitStack()

    def close(self) -> None:
        """Let go of all that was begun, and wait for those at work to notice."""
        self.forget(list(self._begun))
        self._open.close()

    def expect(self, keys: Iterable[Key], workers: int) -> None:
        """Begin jobs in this order, as many at once as there are workers."""
        if workers < 2:
            return
        if self._pool is None:
            self._open.enter_context(one_core_each())
            self._pool = self._open.enter_context(ThreadPoolExecutor(workers))
        for key in keys:
            if key not in self._found and key not in self._begun:
                unwanted = Event()
                # A thread begins without the settings of the one that started it.
                job = partial(copy_context().run, self._work, key, unwanted.is_set)
                self._begun[key] = _Begun(self._pool.submit(job), unwanted)

    def result(self, key: Key) -> Result:
        """What comes of the job of a key; it is done now if nobody has begun it."""
        if key not in self._found:
            begun = self._begun.pop(key, None)
            if begun is not None:
                self._found[key] = begun.future.result()
            else:
                self._found[key] = self._work(key, lambda: False)
        return self._found[key]

    def forget(self, keys: Iterable[Key]) -> None:
        """Give up what was begun of some jobs and not asked for."""
        for key in keys:
            if begun := self._begun.pop(key, None):
                begun.future.cancel()
                begun.unwanted.set()
