"""Tables in folders: written by the first process, a part at a time.

A checkpoint must never name a table that is half written. So a table is written under a
new name, then the checkpoint that names it, and only then the old table is removed.
"""

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsebo.data.formats.npy_stream import header_of, open_array
from gsebo.distributed.entries import Entries
from gsebo.distributed.tables import CHUNK, EntryTable, column_file
from gsebo.errors import InvalidInput
from gsebo.files import checksum

_WHAT = "a column of a table written by gsebo"


def save_table(table: EntryTable, folder: Path) -> dict[str, str]:
    """Write a table into a new folder, one ``.npy`` file for each column.

    All processes of the group take part, and the first one writes. In the end the
    folder is there as a whole or not at all.

    Args:
        table: What to write.
        folder: Must not exist yet.

    Returns:
        Checksum of each column's file, where this process wrote it.
    """
    checksums: dict[str, str] = {}
    begun = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        if table.group.is_first:
            begun.mkdir(parents=True)
        for name, axes in table.columns.items():
            if table.group.is_first:
                with open(column_file(begun, name), "xb") as file:
                    _write_column(table, name, axes, file)
                checksums[name] = checksum(column_file(begun, name), _WHAT)
            else:
                for _ in _chunks(table.total):
                    table.take(torch.empty(0, dtype=torch.int64), [name])
                    table.release()
        if table.group.is_first:
            os.rename(begun, folder)
        return checksums
    except OSError as error:
        raise InvalidInput(
            f"cannot write {folder} ({error.strerror}); expected a new folder in one "
            "that is writable"
        ) from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)


def check_table(
    table: EntryTable,
    folder: Path,
    checksums: Mapping[str, str],
    names: Sequence[str] | None = None,
) -> None:
    """Raise unless a folder holds what :func:`save_table` wrote, all of it numbers.

    Only this process reads.

    Args:
        table: With the columns that are to be read.
        folder: Where they lie.
        checksums: What :func:`save_table` returned.
        names: Which columns; ``None`` for all.
    """
    expected = table.chosen(names)
    if checksums.keys() != expected.keys():
        raise InvalidInput(
            f"{folder} is said to hold {', '.join(sorted(checksums)) or 'nothing'}; "
            f"expected the columns {', '.join(sorted(expected))}"
        )
    for name, axes in expected.items():
        path = column_file(folder, name)
        if checksum(path, _WHAT) != checksums[name]:
            raise InvalidInput(
                f"{path} is damaged: its checksum is another one; expected {_WHAT}"
            )
        for own in _chunks(table.total):
            # Opened anew each time: what was read no longer counts as memory.
            values = _opened(table, path, (*axes, table.total))
            if not np.isfinite(values[..., own.start : own.stop]).all():
                raise InvalidInput(f"{path} is not all finite; expected {_WHAT}")


def load_table(table: EntryTable, folder: Path) -> None:
    """Read what :func:`save_table` wrote, by any number of processes.

    All processes of the group take part, and only the first one reads.

    Args:
        table: With the same columns, whose numbers are replaced.
        folder: Where they lie.
    """
    for name, axes in table.columns.items():
        path, shape = column_file(folder, name), (*axes, table.total)
        for own in _chunks(table.total):
            parts = []
            if table.group.is_first:
                # Opened anew each time: what was read no longer counts as memory.
                values = _opened(table, path, shape)[..., own.start : own.stop].copy()
                ids = torch.arange(own.start, own.stop)
                parts = [Entries(ids, {name: torch.from_numpy(values)})]
            table.write(*table.gathered(parts, [name]))
            table.release()


def discard_tables(keep: Path) -> None:
    """Remove earlier tables, and what a killed process had begun to write.

    Args:
        keep: For example ``table-12``, next to which any other ``table-...`` goes.
    """
    stem = keep.name.rpartition("-")[0]
    # Numbers only: another stage may be called "table-something".
    for pattern in (f"{stem}-[0-9]*", f".{stem}-[0-9]*"):
        for path in keep.parent.glob(pattern):
            if path != keep:
                shutil.rmtree(path)


def _write_column(
    table: EntryTable, name: str, axes: tuple[int, ...], file: IO[bytes]
) -> None:
    file.write(header_of(_kind(table), (*axes, table.total)))
    place, size = file.tell(), _kind(table).itemsize
    for own in _chunks(table.total):
        found = table.take(torch.arange(own.start, own.stop), [name])[name]
        table.release()
        for row, numbers in enumerate(found.cpu().reshape(-1, len(own)).numpy()):
            file.seek(place + (row * table.total + own.start) * size)
            file.write(numbers.tobytes())
    file.flush()
    os.fsync(file.fileno())


def _opened(table: EntryTable, path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    return open_array(path, _kind(table), shape)


def _chunks(total: int) -> list[range]:
    return [range(begin, min(begin + CHUNK, total)) for begin in range(0, total, CHUNK)]


def _kind(table: EntryTable) -> np.dtype:
    return torch.empty(0, dtype=table.dtype).numpy().dtype
