"""What a file of ours may say: one typed description of each, checked on reading.

A file is a claim by whoever wrote it. Before anything is computed or allocated, its
text is decoded into a :class:`Record`, which refuses unknown names, wrong types,
numbers out of range or not finite, and nesting that nobody needs.
"""

import hashlib
import json
import math
import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from gsebo.errors import InvalidInput, escaped
from gsebo.files import read_bytes
from gsebo.version import __version__

# What fits on a disk, what is made one by one, and what random numbers begin with.
Size = Annotated[int, Meta(ge=0, le=2**48)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
# Any number: JSON has no others, and TOML's are looked through.
Finite = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float
Name = Annotated[str, Meta(min_length=1, max_length=200)]
# A few sentences at most.
Text = Annotated[str, Meta(max_length=100_000)]
# Of a table that is free to have any.
Key = Annotated[str, Meta(max_length=200)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]

_Flat = None | bool | Finite | Text
_Nested = _Flat | list[_Flat] | dict[Key, _Flat]
_Deeper = _Flat | list[_Nested] | dict[Key, _Nested]
# Of a parameter, which may have options, which may have options.
Value = _Flat | list[_Deeper] | dict[Key, _Deeper]

_LONGEST_TEXT = 64 * 2**20
_DEEPEST = 32
_SEAL = "sha256"
# A person writes it. Far longer names of keys than anyone needs take tomllib minutes.
_LONGEST_TOML = 2**16
_KEY_ENDS = re.compile("[=,\n]")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file, or a part of one, consists of; subclasses name the fields."""


Kind = TypeVar("Kind")


def json_as(kind: type[Kind], text: bytes | str, where: str, what: str) -> Kind:
    """Decode JSON into what it has to consist of.

    Here and below, ``where`` it comes from and ``what`` it should be, for example "a
    manifest", are for the message.
    """
    try:
        content = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _refused(where, what, f"no JSON, {_words(error)}") from error
    return plain_as(kind, content, where, what)


def read_toml_as(kind: type[Kind], path: Path, what: str) -> Kind:
    """Read a TOML file that a person wrote; the same checks."""
    return toml_as(kind, read_bytes(path, what, _LONGEST_TOML), f"{path}", what)


def toml_as(kind: type[Kind], text: bytes, where: str, what: str) -> Kind:
    """Decode TOML that a person wrote; the same checks."""
    try:
        plain = text.decode("utf-8")
        if any(part.count(".") > _DEEPEST for part in _KEY_ENDS.split(plain)):
            raise ValueError(f"a key has more than {_DEEPEST} parts")
        content = tomllib.loads(plain)
    except (ValueError, RecursionError) as error:
        raise _refused(where, what, f"no TOML, {_words(error)}") from error
    return plain_as(kind, content, where, what)


def sealed_json(content: dict[str, Any]) -> bytes:
    """JSON that says the checksum of what it says."""
    whole = content | {_SEAL: _seal(content)}
    return json.dumps(whole, indent=1, allow_nan=False).encode()


def read_sealed(path: Path, what: str, *, of_format: int) -> dict[str, Any]:
    """Read what :func:`sealed_json` gave, refuse it where it says anything else.

    The content is still to be checked with :func:`plain_as`.
    """
    text = read_bytes(path, what, _LONGEST_TEXT)
    content = json_as(dict[str, Any], text, f"{path}", what)
    require_format(content, of_format, f"{path}")
    if content.pop(_SEAL, None) != _seal(content):
        raise _refused(
            f"{path}", what, "it was changed since it was written, or is damaged"
        )
    return content


def require_format(content: Any, expected: int, where: str) -> None:
    """Raise unless a file was written by a version that writes what this one reads."""
    found = content.get("format") if isinstance(content, dict) else None
    if type(found) is not int or found != expected:
        raise InvalidInput(
            f"{escaped(where)} has format {escaped(repr(found), longest=40)}; expected "
            f"format {expected}, which gsebo {__version__} writes."
        )


def plain_as(kind: type[Kind], content: Any, where: str, what: str) -> Kind:
    """Check plain objects that were decoded already."""
    if reason := _unsound(content, 0):
        raise _refused(where, what, reason)
    try:
        found = msgspec.convert(content, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refused(where, what, _words(error)) from error
    if reason := _unknown_name(content, found):
        raise _refused(where, what, reason)
    return found


def _unknown_name(content: Any, found: Any) -> str | None:
    """What a dataclass would leave out in silence; a record refuses it by itself."""
    pairs: list[tuple[Any, Any]] = []
    if is_dataclass(found) or isinstance(found, msgspec.Struct):
        if is_dataclass(found):
            known = {field.name for field in fields(found)}
            if unknown := sorted(content.keys() - known):
                return f"unknown field `{escaped(unknown[0], longest=80)}`"
        pairs = [(content[name], getattr(found, name)) for name in content]
    elif isinstance(found, dict):
        pairs = [(content[name], found[name]) for name in found]
    elif isinstance(found, list | tuple):
        pairs = list(zip(content, found, strict=True))
    return next(filter(None, (_unknown_name(*pair) for pair in pairs)), None)


def _seal(content: dict[str, Any]) -> str:
    """Checksum of what JSON says, however it is written down."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _unsound(content: Any, depth: int) -> str | None:
    """What no file of ours may hold, wherever it stands."""
    if depth > _DEEPEST:
        return f"nested deeper than {_DEEPEST} levels"
    if isinstance(content, float):
        return None if math.isfinite(content) else f"{content} is not a finite number"
    if isinstance(content, int):
        return None if abs(content) < 2**63 else "a number beyond 64 bits"
    if content is None or isinstance(content, str):
        return None
    if not isinstance(content, dict | list | tuple):
        return f"a {type(content).__name__}, which no field takes"
    inside = content.values() if isinstance(content, dict) else content
    reasons = (_unsound(one, depth + 1) for one in inside)
    return next(filter(None, reasons), None)


def _words(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return escaped(str(error), longest=300)


def _refused(where: str, what: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{escaped(where)} is not {what}: {reason}")
