"""Numbers for every node or edge, in memory or in a file that nobody else sees."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.mapped import gather_rows, release
from gsebo.errors import InvalidInput

Array = NDArray[Any]


@final
class ScratchTable:
    """A matrix that is written from top to bottom and then read by rows.

    The file has no name: it is gone with the table, however the process ends.

    Args:
        rows: Number of rows.
        width: Number of columns.
        dtype: Type of the numbers.
        in_file: Whether they lie in a file.
        folder: Where; the system's folder for temporary files by default.

    Raises:
        InvalidInput: The folder has no room for it.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        dtype: torch.dtype,
        *,
        in_file: bool,
        folder: Path | None = None,
    ) -> None:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        self.array: Array
        if not in_file or rows * width == 0:
            self.array = np.empty((rows, width), kind)
            return
        needed = rows * width * kind.itemsize
        where = Path(tempfile.gettempdir()) if folder is None else folder
        free = shutil.disk_usage(where).free
        if free < needed:
            # Written to a full disk, a mapped file would end the process.
            raise InvalidInput(
                f"{where} has {free} bytes free; expected at least {needed} for what "
                "does not fit into memory."
            )
        with tempfile.TemporaryFile(dir=where) as file:
            self.array = np.memmap(file, kind, "w+", shape=(rows, width))

    def put(self, begin: int, rows: Tensor) -> None:
        """Write consecutive rows from ``begin`` on."""
        self.array[begin : begin + len(rows)] = rows.numpy(force=True)
        release(self.array)

    def read(self, begin: int, end: int) -> Tensor:
        """Copy consecutive rows."""
        found = torch.from_numpy(np.array(self.array[begin:end]))
        release(self.array)
        return found

    def take(self, rows: Array) -> Tensor:
        """Copy some rows, given in ascending order."""
        return torch.from_numpy(gather_rows(self.array, rows))
