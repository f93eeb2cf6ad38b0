"""Whether stored results are whole, still say what they said, and are up to date.

Schema 1 knew one outer step of GSEBO, the paper's, and had no name for it. Since it has
one, and another step is the default, every trial that GSEBO was fitted in says so: its
identity changes, what it stands for does not.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gsebo.errors import InvalidInput
from gsebo.experiments.plan import default_parameters
from gsebo.experiments.result import SCHEMA, Result, Trial
from gsebo.experiments.store import Store, StoredLine
from gsebo.methods import METHODS
from gsebo.schema import Key, Value, json_as, plain_as

_OLD = 1
_STEP = {"outer_step": "paper"}
_WHAT = ("the line", "a result")
_Parameters = dict[Key, Value]


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
    # The line that counts for each trial: the first end, or the last failure.
    kept: dict[str, StoredLine] = {}
    # Nobody may write between the looks.
    with store.lock():
        by_path: dict[Path, list[StoredLine]] = {path: [] for path in store.paths()}
        for line in store.lines():
            by_path[line.path].append(line)
            if line.result is not None:
                before = kept.get(line.result.key, line).result
                if before is line.result or (before is not None and not before.ok):
                    kept[line.result.key] = line
        unfinished = store.unfinished()
    return [
        _report(path, lines, kept, path in unfinished)
        for path, lines in by_path.items()
    ]


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
    path: Path, lines: list[StoredLine], kept: dict[str, StoredLine], unfinished: bool
) -> FileReport:
    counting, duplicates, problems = [], [], []
    for line in lines:
        if line.result is None:
            problems.append(f"line {line.number} is no result: {line.problem}")
        elif kept[line.result.key] is line:
            counting.append(line.result)
            problems += [f"line {line.number}: {text}" for text in stale(line.result)]
        else:
            duplicates.append(line.number)
    ok = sum(result.ok for result in counting)
    return FileReport(
        path=path,
        lines=len(lines),
        ok=ok,
        failed=len(counting) - ok,
        duplicates=tuple(duplicates),
        unfinished=unfinished,
        problems=tuple(problems),
    )


def stale(result: Result) -> list[str]:
    """Say where the same trial would be another fit today.

    A trial names what differs from the constructor's defaults. If a default has changed
    since, the stored figures belong to the old one. A parameter that is new since is no
    difference: its default is what the fit was before.
    """
    trial = result.trial
    if trial.method not in METHODS:
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
    if type(schema) is not int or schema != _OLD:
        Result.from_line(line)
        return line
    trial = plain_as(Trial, content.get("trial"), *_WHAT)
    if content.get("id") != trial.key:
        raise InvalidInput(f"id {content.get('id')!r} given; expected {trial.key!r}.")
    trial = replace(trial, parameters=_named(trial.method, trial.parameters))
    content |= {"schema": SCHEMA, "id": trial.key, "trial": trial.to_json()}
    if (given := content.get("all_parameters")) is not None:
        everything = plain_as(_Parameters, given, *_WHAT)
        content["all_parameters"] = _named(trial.method, everything)
    fresh = json.dumps(content, allow_nan=False).encode("ascii")
    Result.from_line(fresh)
    return fresh


def _named(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the name of the step that a fit had, where GSEBO was fitted."""
    more: dict[str, Any] = {}
    options = plain_as(_Parameters, parameters.get("method_options") or {}, *_WHAT)
    if method in ("gsebo", "auto"):
        more = _STEP
    elif method == "retrain" and parameters.get("method", "gsebo") == "gsebo":
        more = {"method_options": dict(sorted({**options, **_STEP}.items()))}
    return dict(sorted({**parameters, **more}.items())) if more else parameters
