"""Files that were read and found right: remembered, so that they are not read again.

A file is taken to be as it was while its inode, size and times of change are. What was
found is kept in this process and, of files that take long to read, in the user's cache,
for the next process. Whatever is wrong with the cache, files are just read again.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, final

from gsebo.data.locate import cache_folder
from gsebo.errors import InvalidInput, escaped
from gsebo.files import read_bytes, require_regular, write_atomically

# Bytes from which on a process tells the next one.
_LARGE = 2**24
# Nanoseconds for which a file may be written again without a new time of change: what
# clocks are late by, or where there are whole seconds only, two of them and some more.
_TICK, _COARSE_TICK = 10**8, 25 * 10**8
# How long to wait for another process that reads the same: seconds, bytes in a second.
_PATIENCE, _SLOWEST = 10.0, 10**7
_POLL = 0.02
# What a cache raises that is not there, not ours, or in no place at all.
_UNUSABLE = (OSError, RuntimeError, ValueError)

_PASSED: set[str] = set()


@final
class _State(NamedTuple):
    """What tells whether a file was changed."""

    inode: int
    size: int
    modified: int
    changed: int

    def is_young(self, now: int) -> bool:
        """Whether it could still be changed without its times telling."""
        return any(
            abs(now - moment) <= (_TICK if moment % 10**9 else _COARSE_TICK)
            for moment in (self.modified, self.changed)
        )


@final
class CheckedFiles:
    """Files, as they are now, that are to be checked by one rule.

    Args:
        files: The files.
        what: What they should be, for messages, for example "an array".
    """

    def __init__(self, files: Sequence[Path], what: str) -> None:
        self._files, self._what = files, what
        self._states = self._look()
        self._is_large = sum(state.size for state in self._states) >= _LARGE
        if self._is_large:
            self._outlast_a_tick()
        self._are_old = not any(s.is_young(time.time_ns()) for s in self._states)

    def check_once(
        self, rule: str, check: Callable[[], object], *, anew: bool = False
    ) -> None:
        """Check the files unless that was done before.

        Of several processes that want the same, one reads and the others wait for it.

        Args:
            rule: What they are compared with, all of it.
            check: Reads them and raises if they are wrong.
            anew: Read them whatever is remembered.
        """
        if not anew and self._known(rule):
            return
        with self._alone(rule):
            # Another process may have been faster.
            if not anew and self._known(rule):
                return
            check()
            self.remember(rule)

    def remember(self, rule: str) -> None:
        """Keep in mind that these files were found right.

        Args:
            rule: What they were compared with.

        Raises:
            InvalidInput: They were changed in the meantime.
        """
        for path, before, now in zip(
            self._files, self._states, self._look(), strict=True
        ):
            if before != now:
                raise InvalidInput(
                    f"{escaped(str(path))} was changed while it was read; expected it "
                    "to stay as it is."
                )
        if not self._are_old:
            return
        key = self._key(rule)
        _PASSED.add(key)
        if self._is_large:
            with suppress(*_UNUSABLE):
                write_atomically(_place(key), key.encode())

    def _known(self, rule: str) -> bool:
        key = self._key(rule)
        if key in _PASSED:
            return True
        if not self._is_large:
            return False
        with suppress(*_UNUSABLE):
            if read_bytes(_place(key), "a note of gsebo", len(key)) == key.encode():
                _PASSED.add(key)
                return True
        return False

    def _key(self, rule: str) -> str:
        return hashlib.sha256(repr((rule, self._states)).encode()).hexdigest()

    def _look(self) -> list[_State]:
        found = (require_regular(path, self._what) for path in self._files)
        return [
            _State(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
            for one in found
        ]

    def _outlast_a_tick(self) -> None:
        """Wait until a change would be seen: reading twice would take longer."""
        until = time.monotonic() + _COARSE_TICK / 1e9
        while any(state.is_young(time.time_ns()) for state in self._states):
            if time.monotonic() > until:
                return
            time.sleep(_POLL)
        self._states = self._look()

    @contextmanager
    def _alone(self, rule: str) -> Iterator[None]:
        """Keep other processes from reading the same at the same time.

        Nothing depends on it: who waits for too long, or cannot tell the others, reads
        all the same.
        """
        lock = None
        if self._is_large and os.name == "posix":
            with suppress(*_UNUSABLE):
                path = _place(self._key(rule)).with_suffix(".lock")
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        if lock is None:
            yield
            return
        try:
            self._wait_for(lock, rule)
            yield
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            # With it goes the lock, as it does when a process is killed.
            os.close(lock)

    def _wait_for(self, lock: int, rule: str) -> None:
        import fcntl

        size = sum(state.size for state in self._states)
        until = time.monotonic() + _PATIENCE + size / _SLOWEST
        while time.monotonic() < until and not self._known(rule):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL)
            except OSError:
                # A file system without locks.
                return
            else:
                return


def _place(key: str) -> Path:
    return cache_folder() / "checked" / key
