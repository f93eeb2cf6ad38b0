"""Lines of an older schema to what they would say today.

Schema 1 knew one outer step of GSEBO, the paper's, and had no name for it. Since it has
one, and another step is the default, every trial that GSEBO was fitted in says so: its
identity changes, what it stands for does not.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gsebo.errors import InvalidInput
from gsebo.experiments.result import SCHEMA, Result
from gsebo.experiments.store import Store
from gsebo.experiments.trial import Trial
from gsebo.schema import Key, Value, json_as, plain_as

_OLD = 1
_STEP = {"outer_step": "paper"}
_WHAT = ("the line", "a result")
_Parameters = dict[Key, Value]


@dataclass(frozen=True)
class Migration:
    """What became of a file.

    Attributes:
        path: The file.
        lines: Number of its lines.
        migrated: How many of them were of the older schema and are not any more.
        renamed: How many of those say more of their trial now.
        problem: Why the file was left as it is, if it was.
    """

    path: Path
    lines: int
    migrated: int
    renamed: int
    problem: str | None = None


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
        return Migration(path, len(lines), 0, 0, f"{problem} away.")
    fresh: list[bytes] = []
    for number, line in enumerate(lines, 1):
        try:
            fresh.append(migrated_line(line))
        except InvalidInput as error:
            problem = f"line {number} is no result: {error}"
            return Migration(path, len(lines), 0, 0, problem)
    changed = [(old, new) for old, new in zip(lines, fresh, strict=True) if old != new]
    if changed:
        store.replace(path, fresh)
    renamed = sum(json.loads(a)["id"] != json.loads(b)["id"] for a, b in changed)
    return Migration(path, len(lines), len(changed), renamed)


def migrated_line(line: bytes) -> bytes:
    """Bring one line up to date; one of today's stays as it is.

    Raises:
        InvalidInput: It is no result, now or then.
    """
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
