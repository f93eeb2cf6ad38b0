"""Reading and writing files so that nothing half-written or malicious gets through."""

import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gsebo.errors import InvalidInput, escaped

_JSON_KEY = "json"
_AT_ONCE = 2**22


def require_regular(path: Path, what: str) -> os.stat_result:
    """Raise unless there is a plain file: a pipe would be waited for, for ever.

    Args:
        path: The file.
        what: What it should be, for the message, for example "a model".
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = _why(error)
        raise InvalidInput(
            f"{escaped(str(path))} cannot be read ({reason}); expected {what}"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(
            f"{escaped(str(path))} is {_kind_of(found.st_mode)}; expected a file "
            f"that is {what}"
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
        raise InvalidInput(
            f"{escaped(str(path))} cannot be read ({_why(error)}); expected {what}"
        ) from error


def checksum(path: Path, what: str) -> str:
    """The sha256 of a plain file, read in pieces."""
    require_regular(path, what)
    hasher = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_AT_ONCE):
                hasher.update(piece)
    except OSError as error:
        raise InvalidInput(
            f"{escaped(str(path))} cannot be read ({_why(error)}); expected {what}"
        ) from error
    return hasher.hexdigest()


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return "there is no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return escaped(str(error))


def _kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is either the old one or the whole new one at any moment."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not `mkstemp`: its files could be read by their owner only.
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise InvalidInput(_cannot_write(path, error)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(_cannot_write(path, error)) from error
        raise


def write_tensors(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]
) -> None:
    """Write tensors and JSON-able facts into one safetensors file."""
    # Copies, because safetensors refuses two names for the same memory.
    plain = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in tensors.items()
    }
    write_atomically(path, save(plain, {_JSON_KEY: json.dumps(facts)}))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote; never unpickles.

    Args:
        path: The file.
        what: What it should be, for the error message, for example "a model".
    """
    if not path.is_file():
        raise InvalidInput(f"{path} does not exist; expected {what}")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[_JSON_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not isinstance(facts, dict):
            raise ValueError("its facts are no JSON object")
    except (SafetensorError, OSError, ValueError, KeyError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is damaged or not {what} ({error}); expected an undamaged file "
            "written by gsebo"
        ) from error
    return tensors, facts


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object or say what is wrong with the file."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; expected {what}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged or not {what} ({error})") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"{path} is not {what}: expected a JSON object")
    return content


def check_writable(folder: Path) -> None:
    """Raise now, rather than after an hour of work, if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe"):
            pass
    except OSError as error:
        raise InvalidInput(_cannot_write(folder, error)) from error


def _cannot_write(path: Path, error: OSError) -> str:
    return f"cannot write {path} ({error.strerror}); expected a folder that is writable"
