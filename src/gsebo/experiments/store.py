"""Results on disk: files of JSON lines that only ever grow.

Any number of processes may append to one folder. A process that is killed while it
writes leaves at most a last line without its end, which the next writer takes away.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from filelock import FileLock

from gsebo.errors import InvalidInput
from gsebo.experiments.result import Result
from gsebo.files import require_regular, write_atomically

_SUFFIX = ".jsonl"
_TAIL = 256


@dataclass(frozen=True)
class StoredLine:
    """One line of a file."""

    path: Path
    number: int  # From 1.
    result: Result | None  # ``None`` where it cannot be read.
    problem: str | None = None  # Why not.


@dataclass(frozen=True)
class _Mark:
    """How far a file was read."""

    inode: int  # A file that replaces this one has another.
    end: int  # Number of bytes.
    tail: bytes  # The last of them.

    @classmethod
    def at(cls, path: Path, end: int) -> "_Mark":
        with path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(max(end - _TAIL, 0))
            return cls(inode, end, file.read(min(end, _TAIL)))

    def holds(self, path: Path) -> bool:
        """Whether the file still begins with what was read."""
        return path.is_file() and _Mark.at(path, self.end) == self


@final
class Store:
    """All results of a folder, which need not exist.

    A trial counts as stored wherever in the folder its line is. Of several lines of one
    trial the first that came to its end counts, else the last failure.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._marks: dict[Path, _Mark] = {}
        self._known: dict[str, Result] = {}

    def results(self) -> dict[str, Result]:
        """Every result by the key of its trial; raises if a line cannot be read."""
        self._read_news()
        return dict(self._known)

    def append(self, name: str, results: Iterable[Result]) -> list[Result]:
        """Add results to a file, but what is known already; return what was added.

        Of a trial that came to its end nothing else is ever added, and a failure only
        if it is another one. The name of the file has no suffix here.
        """
        path = self.folder / f"{name}{_SUFFIX}"
        with self.lock():
            self._read_news()
            news = {one.key: one for one in results if not self._settled(one)}
            fresh = list(news.values())
            text = "".join(f"{one.line()}\n" for one in fresh)
            try:
                with path.open("ab") as file:
                    _drop_unfinished_line(path)
                    file.write(text.encode("utf-8"))
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise InvalidInput(_cannot_write(path, error)) from error
            self._read_news()
        return fresh

    def lines(self) -> Iterator[StoredLine]:
        """Every whole line of every file, readable or not."""
        for path in self.paths():
            for number, text in enumerate(self.texts(path)[:-1], 1):
                yield _parse(path, number, text)

    def unfinished(self) -> list[Path]:
        """Files whose last line has no end."""
        return [path for path in self.paths() if self.texts(path)[-1]]

    def rewrite(self, path: Path, *, without: Collection[int]) -> None:
        """Write a file anew without some lines, byte by byte as it was otherwise.

        A last line that has no end is left out too. The caller holds the lock.
        """
        lines = self.texts(path)[:-1]
        kept = [line for number, line in enumerate(lines, 1) if number not in without]
        self.replace(path, kept)

    def replace(self, path: Path, lines: Iterable[bytes]) -> None:
        """Write other lines into a file, all at once; the caller holds the lock."""
        write_atomically(path, b"".join(line + b"\n" for line in lines))
        self._forget()

    def texts(self, path: Path) -> list[bytes]:
        """Lines of a file as they are, and last what has no end: mostly nothing."""
        return _content(path).split(b"\n")

    def paths(self) -> list[Path]:
        """All files of the folder."""
        # Not its own methods: those raise for names that are too long to be there.
        if not os.path.isdir(self.folder):
            if not os.path.exists(self.folder):
                return []
            raise InvalidInput(
                f"{self.folder} is no folder; expected one with files of results."
            )
        return sorted(self.folder.glob(f"*{_SUFFIX}"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", is_singleton=True)
            lock.acquire()
        except OSError as error:
            raise InvalidInput(_cannot_write(self.folder, error)) from error
        try:
            yield
        finally:
            lock.release()

    def _settled(self, result: Result) -> bool:
        known = self._known.get(result.key)
        return known is not None and (known.ok or known.error == result.error)

    def _read_news(self) -> None:
        """Read what was appended to any file since the last time.

        Where a file is another one than before, as after `git pull` or after somebody
        put it in order, everything is read again.
        """
        if not all(mark.holds(path) for path, mark in self._marks.items()):
            self._forget()
        for path in self.paths():
            begin = self._marks[path].end if path in self._marks else 0
            news = _content(path, begin)
            whole = news[: news.rfind(b"\n") + 1]
            for line in whole.split(b"\n")[:-1]:
                parsed = _parse(path, 0, line)
                if parsed.result is None:
                    raise InvalidInput(
                        f"{path} has a line that is no result: {parsed.problem} "
                        "`gsebo results verify` tells more."
                    )
                if not self._settled(parsed.result):
                    self._known[parsed.result.key] = parsed.result
            self._marks[path] = _Mark.at(path, begin + len(whole))

    def _forget(self) -> None:
        self._marks.clear()
        self._known.clear()


def _content(path: Path, begin: int = 0) -> bytes:
    require_regular(path, "a file of results")
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(
            f"{path} cannot be read ({reason}); expected a file of results."
        ) from error


def _parse(path: Path, number: int, text: bytes) -> StoredLine:
    try:
        return StoredLine(path, number, Result.from_line(text))
    except InvalidInput as error:
        return StoredLine(path, number, None, str(error))


def _cannot_write(path: Path, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"cannot write {path} ({reason}); expected a folder that is writable."


def _drop_unfinished_line(path: Path) -> None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read() in (b"", b"\n"):
            return
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
