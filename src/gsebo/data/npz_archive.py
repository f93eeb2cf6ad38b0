"""Named arrays in a .npz file: read without pickle, written atomically."""

import io
import os
import uuid
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gsebo.errors import InvalidInput

Arrays = Mapping[str, NDArray[Any]]

_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
_FIRST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def read_arrays(path: Path, keys: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read those of ``keys`` that the file holds; nothing is ever unpickled."""
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder: expected a .npz file.")
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}: expected a .npz file.")
    # Opened here because numpy leaves it open when the archive turns out damaged.
    with _open(path) as file, _archive(file, path) as archive:
        return {key: _read(archive, key, path) for key in archive.files if key in keys}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a compressed .npz, whole or not at all, the same bytes each time."""
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent} to write {path.name} in.")
    partial = path.parent / f".{path.name}.{uuid.uuid4().hex}.partial"
    try:
        with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
            for key in sorted(arrays):
                archive.writestr(_member(key), _as_npy(arrays[key]), compresslevel=9)
        os.replace(partial, path)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"cannot open {path}: {error.strerror}.") from error


def _archive(file: BinaryIO, path: Path) -> Any:
    try:
        archive = np.load(file, allow_pickle=False)
    except _UNREADABLE as error:
        raise InvalidInput(f"{path} is not a readable .npz file.") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InvalidInput(f"{path} holds one array: expected a .npz of named arrays.")
    return archive


def _read(archive: Mapping[str, Any], key: str, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(archive[key])
    except _UNREADABLE as error:
        raise InvalidInput(
            f"array {key!r} of {path} cannot be read: "
            "expected plain numbers or text, without Python objects."
        ) from error


def _member(key: str) -> zipfile.ZipInfo:
    # Without a fixed date the same graph would give another file each time.
    member = zipfile.ZipInfo(f"{key}.npy", _FIRST_ZIP_DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def _as_npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()
