"""Reading and writing files so that nothing half-written or malicious gets through.

A file is a claim by whoever wrote it. Before anything is computed or allocated, its
text is decoded into a :class:`Record`, which refuses unknown names, wrong types,
numbers out of range or not finite, and nesting that nobody needs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, final

import msgspec
from msgspec import Meta
from safetensors import SafetensorError, safe_open

from gsebo.errors import InvalidInput, escaped
from gsebo.version import __version__

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_JSON_KEY, _CHECKSUM_KEY = "json", "sha256"
# Numbers that we write; safetensors knows others that torch cannot even compare.
_KINDS = ("BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64")
# What the header of a file that was made up may lead to.
_MALFORMED = (OSError, ValueError, LookupError, RuntimeError, TypeError, MemoryError)
_KINDS_OF_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_regular(path: Path, what: str) -> os.stat_result:
    """Raise unless there is a plain file: a pipe would be waited for, for ever.

    Here and below, ``what`` is what it should be, for the message: "a model".
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, what, error) from error
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS_OF_FILES.get(stat.S_IFMT(found.st_mode), "no file")
        raise InvalidInput(
            f"{escaped(str(path))} is {kind}; expected a file that is {what}"
        )
    return found


def read_bytes(path: Path, what: str, most: int) -> bytes:
    """Read a plain file of a bounded size."""
    size = require_regular(path, what).st_size
    if size > most:
        raise InvalidInput(
            f"{escaped(str(path))} has {size:,} bytes; expected {what}, of {most:,} "
            "at most"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, what, error) from error


def checksum(path: Path, what: str) -> str:
    """The sha256 of a plain file, read in pieces."""
    require_regular(path, what)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, what, error) from error


def _unreadable(path: Path, what: str, error: OSError | ValueError) -> InvalidInput:
    reason = escaped(str(error))
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        reason = "there is no such file"
    return InvalidInput(
        f"{escaped(str(path))} cannot be read ({reason}); expected {what}"
    )


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file that is either the old one or the whole new one at any moment."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not `mkstemp`: its files could be read by their owner only.
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except (OSError, ValueError) as error:
        raise InvalidInput(_cannot_write(path, error)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in [content] if isinstance(content, bytes) else content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(_cannot_write(path, error)) from error
        raise


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: Any) -> None:
    """Write tensors and JSON-able facts into one safetensors file, with a checksum."""
    # Not at the top: most files are read without torch.
    import torch
    from safetensors.torch import save

    # Copies, because safetensors refuses two names for the same memory.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    text = json.dumps(facts, allow_nan=False)
    about = {_JSON_KEY: text, _CHECKSUM_KEY: _checksum_of(plain, text)}
    write_atomically(path, save(plain, about))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], Any]:
    """Read what :func:`write_tensors` wrote; never unpickles.

    Whatever differs from what was written is refused. What the tensors have to be is
    said with :func:`check_tensors`, and what the facts with a schema.
    """
    require_regular(path, what)
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            text, found = about[_JSON_KEY], about.get(_CHECKSUM_KEY)
            tensors: dict[str, Tensor] = {}
            for name in file.keys():  # noqa: SIM118
                if (kind := file.get_slice(name).get_dtype()) not in _KINDS:
                    raise ValueError(f"numbers of type {kind}")
                tensors[name] = file.get_tensor(name)
        if found is None:
            raise ValueError("it has no checksum, as older versions wrote it")
        if found != _checksum_of(tensors, text):
            raise ValueError("its checksum is another one")
        return tensors, json.loads(text)
    except (SafetensorError, *_MALFORMED) as error:
        reason = escaped(" ".join(str(error).split()), longest=300)
        raise InvalidInput(
            f"{escaped(str(path))} is damaged or not {what} ({reason}); expected an "
            "undamaged file written by this version of gsebo"
        ) from error


@final
@dataclass(frozen=True)
class Form:
    """What a tensor of a file has to be, its numbers from ``low`` to below ``high``."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    may_be_infinite: bool = False

    def contradicted_by(self, tensor: Tensor) -> str | None:
        """What a tensor is that it should not be, in words."""
        if tensor.dtype != self.dtype or tuple(tensor.shape) != self.shape:
            return f"{_form(tensor)}; expected {_form(self)}"
        if not tensor.numel():
            return None
        if tensor.is_floating_point():
            sound = ~tensor.isnan() if self.may_be_infinite else tensor.isfinite()
            if not bool(sound.all()):
                return "not all finite; expected numbers"
        if self.low is not None and bool((tensor < self.low).any()):
            return f"down to {tensor.min()}; expected {self.low} at least"
        if self.high is not None and bool((tensor >= self.high).any()):
            return f"up to {tensor.max()}; expected less than {self.high}"
        return None


def check_tensors(
    tensors: dict[str, Tensor], forms: Mapping[str, Form], where: str
) -> None:
    """Raise unless these are exactly the tensors that there should be.

    ``where`` is what they belong to, for the message.
    """
    missing, foreign = forms.keys() - tensors.keys(), tensors.keys() - forms.keys()
    reasons = [f"it lacks {name}; expected it" for name in sorted(missing)]
    reasons += [f"it holds {one}; expected no such tensor" for one in sorted(foreign)]
    for name, form in forms.items():
        if not reasons and (found := form.contradicted_by(tensors[name])):
            reasons.append(f"{name} is {found}")
    if reasons:
        raise InvalidInput(
            f"{escaped(where)} does not fit its own description: "
            f"{escaped(reasons[0], longest=300)}."
        )


def _form(tensor: Tensor | Form) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _checksum_of(tensors: dict[str, Tensor], text: str) -> str:
    """Checksum of everything that is read from a file, in whichever order it lies."""
    import torch

    hasher = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        hasher.update(f"\n{json.dumps(name)} {_form(tensor)}\n".encode())
        hasher.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def check_writable(folder: Path) -> None:
    """Raise now, rather than after an hour of work, if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe"):
            pass
    except (OSError, ValueError) as error:
        raise InvalidInput(_cannot_write(folder, error)) from error


def _cannot_write(path: Path, error: OSError | ValueError) -> str:
    shown = escaped(str(path))
    reason = getattr(error, "strerror", None) or escaped(str(error))
    return f"cannot write {shown} ({reason}); expected a folder that is writable"


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
