"""Whether stored results are whole, and still say what they said."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gsebo.experiments.expand import default_parameters
from gsebo.experiments.result import Result
from gsebo.experiments.store import Store, StoredLine
from gsebo.methods import METHODS


@dataclass(frozen=True)
class FileReport:
    """What a file of results is like.

    Attributes:
        path: The file.
        lines: Number of whole lines.
        ok: Number of trials that came to their end, each counted where it is kept.
        failed: Number of trials that failed, likewise.
        duplicates: Numbers of the lines that say nothing, because another line has
            what counts for the same trial.
        unfinished: Whether the last line has no end.
        problems: What else is wrong, with the number of the line; nothing of this is
            ever put right without being looked at.
    """

    path: Path
    lines: int
    ok: int
    failed: int
    duplicates: tuple[int, ...]
    unfinished: bool
    problems: tuple[str, ...]

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
        by_path: dict[Path, list[StoredLine]] = {path: [] for path in store.paths()}
        for line in store.lines():
            by_path[line.path].append(line)
        unfinished = store.unfinished()
    kept = _kept(line for lines in by_path.values() for line in lines)
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


def _kept(lines: Iterable[StoredLine]) -> set[tuple[Path, int]]:
    """Place of the line that counts for each trial: the first end, or last failure."""
    by_trial: dict[str, list[StoredLine]] = defaultdict(list)
    for line in lines:
        if line.result is not None:
            by_trial[line.result.key].append(line)
    best = (
        next((line for line in same if line.result and line.result.ok), same[-1])
        for same in by_trial.values()
    )
    return {(line.path, line.number) for line in best}


def _report(
    path: Path,
    lines: list[StoredLine],
    kept: set[tuple[Path, int]],
    unfinished: bool,
) -> FileReport:
    counting, duplicates, problems = [], [], []
    for line in lines:
        if line.result is None:
            problems.append(f"line {line.number} is no result: {line.problem}")
        elif (path, line.number) in kept:
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
