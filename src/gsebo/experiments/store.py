"""Results on disk: files of JSON lines that only ever grow.

Any number of processes may append to one folder. A process that is killed while it
writes leaves at most a last line without its end, which the next writer takes away.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, final

from filelock import FileLock
from msgspec.structs import replace

from gsebo.errors import InvalidInput
from gsebo.experiments.detection import TRIED
from gsebo.experiments.plan import default_parameters
from gsebo.experiments.result import SCHEMA, Result, Trial
from gsebo.files import Key, Value, json_as, plain_as, require_regular, write_atomically

_SUFFIX = ".jsonl"
_TAIL = 256
_STEP = {"outer_step": "paper"}
_WHAT = ("the line", "a result")
_Parameters = dict[Key, Value]
_Place = tuple[Path, int]


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


class KnownResults(Protocol):
    """Where stored results are read."""

    def results(self) -> dict[str, Result]:
        """Every result by the key of its trial."""


@final
class Store:
    """All results of a folder, which need not exist.

    A trial counts as stored wherever in the folder its line is. Of several lines of one
    trial the first that came to its end counts, else the last failure.

    Args:
        folder: Of ``.jsonl`` files, one line for each result.
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
            news = {one.key: one for one in results if not _settled(self._known, one)}
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
            try:
                take_lines(self._known, whole)
            except InvalidInput as error:
                raise InvalidInput(
                    f"{path} has a line that is no result: {error} "
                    "`gsebo results verify` tells more."
                ) from error
            self._marks[path] = _Mark.at(path, begin + len(whole))

    def _forget(self) -> None:
        self._marks.clear()
        self._known.clear()


def take_lines(known: dict[str, Result], text: bytes) -> None:
    """Add the results of whole lines to those that are known by their keys.

    Raises:
        InvalidInput: A line is no result.
    """
    for line in text.split(b"\n")[:-1]:
        result = Result.from_line(line)
        if not _settled(known, result):
            known[result.key] = result


def _settled(known: Mapping[str, Result], result: Result) -> bool:
    """Whether a result says nothing that counts beside what is known."""
    other = known.get(result.key)
    return other is not None and (other.ok or other.error == result.error)


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


# --- whether it is whole, and still says what it said --------------------------------


@dataclass(frozen=True)
class FileReport:
    """What a file of results is like."""

    path: Path
    lines: int  # Number of whole lines.
    ok: int  # Number of trials that came to their end, each counted where it is kept.
    failed: int  # Number of trials that failed, likewise.
    # Numbers of the lines that say nothing: another has what counts for the same trial.
    duplicates: tuple[int, ...]
    unfinished: bool  # Whether the last line has no end.
    problems: tuple[str, ...]  # Of lines; never put right without being looked at.

    @property
    def sound(self) -> bool:
        """Whether there is nothing to complain of; failed trials are no fault."""
        return not (self.duplicates or self.unfinished or self.problems)


def check_results(store: Store) -> list[FileReport]:
    """Look at every line of every file."""
    if not store.paths():
        return []
    # Nobody may write between the looks.
    with store.lock():
        texts = {path: store.texts(path) for path in store.paths()}
    found: dict[_Place, Result | InvalidInput] = {}
    # The line that counts for each trial: the first end, or the last failure.
    kept: dict[str, _Place] = {}
    ended: set[str] = set()
    for path, lines in texts.items():
        for number, line in enumerate(lines[:-1], 1):
            try:
                result = found[path, number] = Result.from_line(line)
            except InvalidInput as error:
                found[path, number] = error
                continue
            if result.key not in ended:
                kept[result.key] = path, number
            if result.ok:
                ended.add(result.key)
    return [_report(path, lines, found, kept) for path, lines in texts.items()]


def leftovers(store: Store) -> list[Path]:
    """Copies that a process left when it was killed while it put a file in order."""
    return sorted(store.folder.glob(".*.jsonl.*"))


def put_in_order(store: Store) -> None:
    """Take away duplicates, last lines without an end, and leftovers.

    A line that cannot be read stays where it is: somebody has to look at it.
    """
    with store.lock():
        for report in check_results(store):
            if report.duplicates or report.unfinished:
                store.rewrite(report.path, without=report.duplicates)
        for path in leftovers(store):
            path.unlink()


def _report(
    path: Path,
    lines: list[bytes],
    found: dict[_Place, Result | InvalidInput],
    kept: dict[str, _Place],
) -> FileReport:
    counting, duplicates, problems = [], [], []
    for number in range(1, len(lines)):
        result = found[path, number]
        if isinstance(result, InvalidInput):
            problems.append(f"line {number} is no result: {result}")
        elif kept[result.key] == (path, number):
            counting.append(result)
            problems += [f"line {number}: {text}" for text in stale(result)]
        else:
            duplicates.append(number)
    ok = sum(result.ok for result in counting)
    return FileReport(
        path=path,
        lines=len(lines) - 1,
        ok=ok,
        failed=len(counting) - ok,
        duplicates=tuple(duplicates),
        unfinished=bool(lines[-1]),
        problems=tuple(problems),
    )


def stale(result: Result) -> list[str]:
    """Say where the same trial would be another fit today.

    A trial names what differs from the constructor's defaults. If a default has changed
    since, the stored figures belong to the old one. A parameter that is new since is no
    difference: its default is what the fit was before.
    """
    trial = result.trial
    if trial.method not in TRIED:
        return [f"{trial.method} is no method any more."]
    if result.all_parameters is None:
        return []
    today = {**_defaults(trial.method), **trial.parameters}
    return [
        f"{name} of {trial.method} was {json.dumps(then)} and is "
        f"{json.dumps(today[name])} by default now."
        if name in today
        else f"{trial.method} has no parameter {name} any more."
        for name, then in result.all_parameters.items()
        if name not in today or then != today[name]
    ]


@cache
def _defaults(method: str) -> dict[str, Any]:
    """Today's defaults, as they come back from a line of JSON."""
    defaults: dict[str, Any] = json.loads(json.dumps(dict(default_parameters(method))))
    return defaults


# --- lines of an older schema --------------------------------------------------------

# Schema 1 knew one outer step of GSEBO, the paper's, and had no name for it. Since it
# has one, and another step is the default, every trial that GSEBO was fitted in says
# so. Up to schema 2 some parameters had words of our own. A trial's identity changes
# with what it says, what it stands for does not.
_RENAMED = {"num_neighbours": "num_neighbors"}
_SAMPLERS: dict[Any, str] = {"neighbour": "neighbor", "partition": "cluster"}


@dataclass(frozen=True)
class Migration:
    """What became of a file."""

    path: Path
    lines: int
    migrated: int = 0  # How many lines were of the older schema and are not any more.
    renamed: int = 0  # How many of those say more of their trial now.
    problem: str | None = None  # Why the file was left as it is, if it was.


def migrate(store: Store) -> list[Migration]:
    """Bring all files of a folder up to date, each as a whole or not at all."""
    if not store.paths():
        return []
    with store.lock():
        return [_migrate_file(store, path) for path in store.paths()]


def _migrate_file(store: Store, path: Path) -> Migration:
    *lines, rest = store.texts(path)
    if rest:
        problem = "the last line is half-written; `gsebo results verify --fix` takes it"
        return Migration(path, len(lines), problem=f"{problem} away.")
    fresh: list[bytes] = []
    for number, line in enumerate(lines, 1):
        try:
            fresh.append(migrated_line(line))
        except InvalidInput as error:
            problem = f"line {number} is no result: {error}"
            return Migration(path, len(lines), problem=problem)
    changed = [(old, new) for old, new in zip(lines, fresh, strict=True) if old != new]
    if changed:
        store.replace(path, fresh)
    renamed = sum(json.loads(a)["id"] != json.loads(b)["id"] for a, b in changed)
    return Migration(path, len(lines), len(changed), renamed)


def migrated_line(line: bytes) -> bytes:
    """Bring one line up to date; one of today's stays as it is."""
    content = json_as(dict[Key, Any], line, *_WHAT)
    schema = content.get("schema")
    if type(schema) is not int or not 0 < schema < SCHEMA:
        Result.from_line(line)
        return line
    trial = plain_as(Trial, content.get("trial"), *_WHAT)
    if content.get("id") != trial.key:
        raise InvalidInput(f"id {content.get('id')!r} given; expected {trial.key!r}.")
    name = partial(_named if schema == 1 else _renamed, trial.method)
    trial = replace(trial, parameters=name(trial.parameters))
    content |= {"schema": SCHEMA, "id": trial.key, "trial": trial.content()}
    if (given := content.get("all_parameters")) is not None:
        everything = plain_as(_Parameters, given, *_WHAT)
        content["all_parameters"] = name(everything)
    fresh = json.dumps(content, allow_nan=False).encode("ascii")
    Result.from_line(fresh)
    return fresh


def _renamed(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with today's words, also of the method that another one fits."""
    fresh = {_RENAMED.get(name, name): value for name, value in parameters.items()}
    if isinstance(options := fresh.get("method_options"), dict):
        fresh["method_options"] = _renamed(method, options)
    if isinstance(fresh.get("sampler"), str):
        fresh["sampler"] = _SAMPLERS.get(fresh["sampler"], fresh["sampler"])
    return dict(sorted(fresh.items()))


def _named(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the name of the step that a fit had, where GSEBO was fitted."""
    more: dict[str, Any] = {}
    options = plain_as(_Parameters, parameters.get("method_options") or {}, *_WHAT)
    if method in ("gsebo", "auto"):
        more = _STEP
    elif method == "retrain" and parameters.get("method", "gsebo") == "gsebo":
        more = {"method_options": dict(sorted({**options, **_STEP}.items()))}
    return _renamed(method, {**parameters, **more})
