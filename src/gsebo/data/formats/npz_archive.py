"""Archives of arrays as numpy writes them, read and written without pickle.

An archive says twice what it holds, before each member and in a directory at its end.
It is read only where both agree and where the members are the whole file: otherwise a
damaged directory could hide an array, and nobody would miss it.
"""

import io
import math
import os
import struct
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gsebo.errors import InvalidInput, escaped
from gsebo.files import require_regular
from gsebo.memory import require_memory

Arrays = Mapping[str, NDArray[Any]]

_BROKEN = (tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error)
_MISREAD = (EOFError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError)
_UNREADABLE = (*_BROKEN, *_MISREAD, MemoryError, OSError)
_FIRST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_ARRAY = ".npy"
# Signature, version, flags, method, time, date, checksum, both sizes, two lengths.
_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY_SIZE = 46
# Signature, two numbers of disks, entries here and in all, directory's size and place.
_END = struct.Struct("<4s4H2LH")
_WIDE_END_SIZE = 56 + 20
_WIDE = 2**32 - 1
_ENCRYPTED, _SIZES_FOLLOW, _UTF_8 = 1, 8, 0x800
_LONGEST_DESCRIPTOR = 24
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# Bytes that one byte of a deflated member can become, at most.
_HIGHEST_RATIO = 1032
_AT_ONCE = 2**22


def read_arrays(
    path: Path, keys: Sequence[str], beginnings: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Read the arrays of these names, if they are there; nothing is ever unpickled.

    So are those whose names begin in certain ways.

    Members with other names are left alone once their checksum is found right.
    """
    require_regular(path, "a .npz file")
    shown = escaped(str(path))
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise InvalidInput(
                    f"{shown} holds one array: expected a .npz of named arrays."
                )
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, file, shown)
                wanted = {
                    key: members.pop(key)
                    for key in list(members)
                    if key in keys or key.startswith(beginnings)
                }
                # An array as it is stored, and as it is used.
                needed = 2 * sum(member.file_size for member in wanted.values())
                require_memory(
                    needed, what=f"reading {shown}", instead="a smaller graph"
                )
                for member in members.values():
                    with archive.open(member) as stream:
                        while stream.read(_AT_ONCE):
                            pass
                return {
                    key: _read(archive, member, key, shown)
                    for key, member in wanted.items()
                }
    except InvalidInput:
        raise
    except _UNREADABLE as error:
        raise InvalidInput(
            f"{shown} is not a readable .npz file: expected an undamaged one."
        ) from error


def integers(
    arrays: Arrays, key: str, shape: tuple[int | None, ...], where: str
) -> NDArray[np.int64]:
    """Check an array of whole numbers and return them in 64 bits."""
    expect(arrays, key, "iu", shape, where)
    array = arrays[key]
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise InvalidInput(
            f"{key} of {where} holds {int(array.max())}: expected numbers below 2^63."
        )
    return array.astype(np.int64, order="C")


def expect(
    arrays: Arrays, key: str, kinds: str, shape: tuple[int | None, ...], where: str
) -> None:
    """Check an array's kind of numbers and its shape, ``None`` meaning any length."""
    array = arrays[key]
    if array.dtype.kind not in kinds:
        names = {"b": "bool", "iu": "integers", "fiub": "real numbers", "U": "text"}
        raise InvalidInput(
            f"{key} of {where}: expected {names[kinds]}, got {array.dtype}."
        )
    fits = array.ndim == len(shape) and all(
        wanted in (None, given)
        for wanted, given in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if side is None else str(side) for side in shape)
        raise InvalidInput(
            f"{key} of {where}: expected shape [{wanted}], got {list(array.shape)}."
        )


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a compressed .npz, whole or not at all, the same bytes each time."""
    partial = path.parent / f".{path.name}.{uuid.uuid4().hex}.partial"
    try:
        if not os.path.isdir(path.parent):
            raise InvalidInput(
                f"there is no folder {path.parent} to write {path.name} in."
            )
        try:
            with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
                for key in sorted(arrays):
                    # With another date the same graph would give another file.
                    member = zipfile.ZipInfo(f"{key}{_ARRAY}", _FIRST_ZIP_DATE)
                    member.compress_type = zipfile.ZIP_DEFLATED
                    member.external_attr = 0o644 << 16
                    content = io.BytesIO()
                    np.save(content, arrays[key], allow_pickle=False)
                    archive.writestr(member, content.getvalue(), compresslevel=9)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except InvalidInput:
        raise
    # A name with a null character is none.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise InvalidInput(f"cannot write {path}: {reason}.") from error


def _members(
    archive: zipfile.ZipFile, file: BinaryIO, shown: str
) -> dict[str, zipfile.ZipInfo]:
    """The members by key, after both accounts of them were compared."""
    place = 0
    found: dict[str, zipfile.ZipInfo] = {}
    for member in sorted(archive.infolist(), key=lambda each: each.header_offset):
        if member.header_offset != place:
            raise _inconsistent(shown, f"byte {place} belongs to no array")
        place = _end_of_member(member, file, shown)
        key = member.filename.removesuffix(_ARRAY)
        if key in found:
            raise _inconsistent(shown, f"two arrays are called {escaped(key)!r:.40}")
        found[key] = member
    if place != archive.start_dir:
        raise _inconsistent(shown, f"byte {place} belongs to no array")
    _check_end(archive, file, shown)
    return found


def _end_of_member(member: zipfile.ZipInfo, file: BinaryIO, shown: str) -> int:
    """Where a member ends, if its own header says what the directory says."""
    name = escaped(member.filename)[:40]
    file.seek(member.header_offset)
    fields = _LOCAL.unpack(file.read(_LOCAL.size))
    signature, _, flags, method, _, _, checksum, packed, plain = fields[:9]
    lengths: tuple[int, ...] = fields[9:]
    written, extra = file.read(lengths[0]), file.read(lengths[1])
    end = member.header_offset + _LOCAL.size + sum(lengths) + member.compress_size
    sizes = (member.compress_size, member.file_size)
    if flags & _SIZES_FOLLOW:
        file.seek(end)
        following = _descriptor(member, file.read(_LONGEST_DESCRIPTOR))
        agree, end = following > 0, end + following
    else:
        # Numbers beyond 32 bits are elsewhere, plain size first.
        wide = _WIDE in (packed, plain)
        agree = (_wide_sizes(extra) if wide else (packed, plain)) == sizes
        agree &= checksum == member.CRC
    said = (signature, flags, method)
    agree &= said == (b"PK\x03\x04", member.flag_bits, member.compress_type)
    encoding = "utf-8" if flags & _UTF_8 else "cp437"
    if not agree or written.decode(encoding) != member.orig_filename:
        raise _inconsistent(shown, f"{name!r} is described in two ways")
    if flags & _ENCRYPTED or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInput(
            f"{name!r} in {shown} is encrypted or packed in a way that numpy does not "
            "use: expected a file as numpy.savez writes it."
        )
    packed, plain = sizes
    if plain > _HIGHEST_RATIO * packed or (not method and plain != packed):
        raise _inconsistent(shown, f"{name!r} claims {plain:,} bytes in {packed:,}")
    return end


def _wide_sizes(extra: bytes) -> tuple[int, int] | None:
    """Packed and plain size as the extra field of large members holds them."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1 and length >= 16:
            plain, packed = struct.unpack_from("<2Q", extra, 4)
            return packed, plain
        extra = extra[4 + length :]
    return None


def _descriptor(member: zipfile.ZipInfo, following: bytes) -> int:
    """Length of the right numbers after a member, 0 if they are not there."""
    numbers = (member.CRC, member.compress_size, member.file_size)
    for signature in (b"PK\x07\x08", b""):
        for layout in ("<L2Q", "<3L"):
            if layout == "<3L" and max(numbers) > _WIDE:
                continue
            expected = signature + struct.pack(layout, *numbers)
            if following.startswith(expected):
                return len(expected)
    return 0


def _check_end(archive: zipfile.ZipFile, file: BinaryIO, shown: str) -> None:
    """Check that nothing but the directory and its end follows the members."""
    file.seek(archive.start_dir)
    rest = file.read()
    length = entries = 0
    while rest[length : length + 4] == b"PK\x01\x02":
        length += _ENTRY_SIZE + sum(struct.unpack_from("<3H", rest, length + 28))
        entries += 1
    found = len(archive.infolist())
    facts = (found, found, length, archive.start_dir)
    if rest[length : length + 4] == b"PK\x06\x06":
        wide = struct.unpack_from("<4Q", rest, length + 24)
        if wide != facts:
            raise _inconsistent(shown, "its directory is described in two ways")
        length += _WIDE_END_SIZE
    signature, _, _, *said, comment = _END.unpack_from(rest, length)
    limits = (0xFFFF, 0xFFFF, _WIDE, _WIDE)
    agree = all(
        told in (fact, limit)
        for told, fact, limit in zip(said, facts, limits, strict=True)
    )
    whole = length + _END.size + comment == len(rest)
    if not (agree and whole and entries == found and signature == b"PK\x05\x06"):
        raise _inconsistent(shown, "its directory is not as long as it says")


def _read(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, key: str, shown: str
) -> NDArray[Any]:
    """Read one array, whose header must say how long its member is."""
    try:
        with archive.open(member) as stream:
            # The third version is for names of columns, which no array here has.
            version = npy.read_magic(stream)
            shape, fortran, dtype = _HEADERS[version](stream)
            length = math.prod(shape) * dtype.itemsize
            sound = not dtype.hasobject and min(shape, default=0) >= 0
            if not sound or length != member.file_size - stream.tell():
                raise ValueError("no array, or another than its member has room for")
            flat = _filled(stream, length, dtype)
            return flat.reshape(shape, order="F" if fortran else "C")
    except _UNREADABLE as error:
        raise InvalidInput(
            f"array {key!r} of {shown} cannot be read: expected plain numbers or text, "
            "without Python objects."
        ) from error


def _filled(stream: IO[bytes], length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """So many bytes as numbers; to the last, or the checksum is not compared."""
    content = bytearray(length)
    place = 0
    while piece := stream.read(_AT_ONCE):
        content[place : place + len(piece)] = piece
        place += len(piece)
    if place != length:
        raise EOFError
    if not dtype.itemsize:
        return np.zeros(0, dtype)
    return np.frombuffer(content, dtype)


def _inconsistent(shown: str, fault: str) -> InvalidInput:
    return InvalidInput(
        f"{shown} is damaged, {fault}: expected an undamaged .npz file."
    )
