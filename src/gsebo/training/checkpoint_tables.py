"""Tables of numbers per edge beside a checkpoint, which names the folders they lie in.

A folder gets a name of its own each time: what a killed process had left there is never
taken for what the checkpoint means.
"""

import secrets
import shutil
from pathlib import Path
from typing import final

from gsebo.errors import InvalidInput
from gsebo.training.distributed.table_files import (
    discard_tables,
    load_table,
    save_table,
)
from gsebo.training.progress import Progress

_TABLE, _BEST = "table", "best_table"
Names = dict[str, str]
"""Folder of each table that there is."""


@final
class CheckpointTables:
    """Tables that belong to one checkpoint.

    Args:
        path: The file of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: tuple[int, str] | None = None

    def save(self, progress: Progress) -> Names:
        """Write the tables; all processes take part, and the first one writes.

        The best one stays as it is until there is a better one.

        Args:
            progress: With a table.
        """
        table, best = progress.table, progress.best_table
        assert table is not None
        names = {_TABLE: self._name(_TABLE, progress.iterate.step)}
        save_table(table, self._path.with_name(names[_TABLE]))
        if best is not None:
            assert progress.best is not None
            step = progress.best.step
            if self._best is None or self._best[0] != step:
                self._best = step, self._name(_BEST, step)
                save_table(best, self._path.with_name(self._best[1]))
            names[_BEST] = self._best[1]
        return names

    def check(self, names: Names) -> None:
        """Raise if a table is not there."""
        for name in names.values():
            if not self._path.with_name(name).is_dir():
                raise InvalidInput(
                    f"{self._path} needs {name}, which is missing; expected it in the "
                    "same folder"
                )

    def load(self, progress: Progress, start: Progress, names: Names) -> None:
        """Read the tables; all processes take part, and the first one reads.

        Args:
            progress: Gets the tables.
            start: The state before the first step, whose table is filled.
            names: What :meth:`save` returned.
        """
        table = progress.table = start.table
        progress.own_columns = start.own_columns
        assert table is not None
        if _BEST in names and progress.best is not None:
            self._best = progress.best.step, names[_BEST]
            progress.best_table = table.copy(start.own_columns)
            load_table(progress.best_table, self._path.with_name(names[_BEST]))
        load_table(table, self._path.with_name(names[_TABLE]))

    def discard(self, names: Names) -> None:
        """Remove all tables of this checkpoint but those that it names."""
        for kind in (_TABLE, _BEST):
            name = names.get(kind, self._name(kind, 0))
            discard_tables(self._path.with_name(name))

    def _name(self, kind: str, step: int) -> str:
        return f"{self._path.stem}-{kind}-{step}.{secrets.token_hex(4)}"


def remove_tables(folder: Path, stem: str) -> None:
    """Delete the tables of all checkpoints in a folder.

    Args:
        folder: Where they lie.
        stem: What the names of the checkpoints begin with.
    """
    for begin in (stem, f".{stem}"):
        for kind in (_TABLE, _BEST):
            for path in folder.glob(f"{begin}*-{kind}-*"):
                shutil.rmtree(path)
