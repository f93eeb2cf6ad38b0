"""Tables of numbers per edge beside a checkpoint, which names the folders they lie in.

A folder gets a name of its own each time: what a killed process had left there is never
taken for what the checkpoint means.
"""

import secrets
import shutil
from pathlib import Path
from typing import Annotated, Literal, final, get_args

from msgspec import Meta

from gsebo.errors import InvalidInput
from gsebo.schema import Name, Record, Sha256
from gsebo.training.distributed.table import EntryTable
from gsebo.training.distributed.table_files import (
    check_table,
    discard_tables,
    load_table,
    save_table,
)
from gsebo.training.progress import Progress

_Kind = Literal["table", "best_table"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)


class TableFacts(Record, frozen=True, kw_only=True):
    """Which table a checkpoint means.

    Attributes:
        folder: Name of the folder that it lies in, beside the checkpoint.
        columns: Checksum of each column's file.
    """

    folder: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.%+-]{0,250}$")]
    columns: dict[Name, Sha256]


Tables = dict[_Kind, TableFacts]
"""Each table that there is."""


@final
class CheckpointTables:
    """Tables that belong to one checkpoint.

    Args:
        path: The file of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: tuple[int, TableFacts] | None = None

    def save(self, progress: Progress) -> Tables:
        """Write the tables; all processes take part, and the first one writes.

        The best one stays as it is until there is a better one.

        Args:
            progress: With a table.
        """
        table, best = progress.table, progress.best_table
        assert table is not None
        tables: Tables = {"table": self._save(table, "table", progress.iterate.step)}
        if best is not None:
            assert progress.best is not None
            step = progress.best.step
            if self._best is None or self._best[0] != step:
                self._best = step, self._save(best, "best_table", step)
            tables["best_table"] = self._best[1]
        return tables

    def check(self, tables: Tables, start: Progress) -> None:
        """Raise if a table is not there, or is not the one that was written.

        Args:
            tables: What :meth:`save` returned.
            start: The state before the first step, which has a table or none.
        """
        if ("table" in tables) != (start.table is not None):
            raise InvalidInput(
                f"{self._path} names {len(tables)} tables; expected those of the fit"
            )
        for kind, found in tables.items():
            folder = self._path.with_name(found.folder)
            if not folder.is_dir():
                raise InvalidInput(
                    f"{self._path} needs {found.folder}, which is missing; expected it "
                    "in the same folder"
                )
            assert start.table is not None
            names = None if kind == "table" else start.own_columns
            check_table(start.table, folder, found.columns, names)

    def load(self, progress: Progress, start: Progress, tables: Tables) -> None:
        """Read the tables; all processes take part, and the first one reads.

        Args:
            progress: Gets the tables.
            start: The state before the first step, whose table is filled.
            tables: What :meth:`save` returned.
        """
        table = progress.table = start.table
        progress.own_columns = start.own_columns
        assert table is not None
        best = tables.get("best_table")
        if best is not None and progress.best is not None:
            self._best = progress.best.step, best
            progress.best_table = table.copy(start.own_columns)
            load_table(progress.best_table, self._path.with_name(best.folder))
        load_table(table, self._path.with_name(tables["table"].folder))

    def discard(self, tables: Tables) -> None:
        """Remove all tables of this checkpoint but those that it names."""
        for kind in _KINDS:
            kept = tables.get(kind)
            name = self._name(kind, 0) if kept is None else kept.folder
            discard_tables(self._path.with_name(name))

    def _save(self, table: EntryTable, kind: _Kind, step: int) -> TableFacts:
        name = self._name(kind, step)
        columns = save_table(table, self._path.with_name(name))
        return TableFacts(folder=name, columns=columns)

    def _name(self, kind: _Kind, step: int) -> str:
        return f"{self._path.stem}-{kind}-{step}.{secrets.token_hex(4)}"


def remove_tables(folder: Path, stem: str) -> None:
    """Delete the tables of all checkpoints in a folder.

    Args:
        folder: Where they lie.
        stem: What the names of the checkpoints begin with.
    """
    for begin in (stem, f".{stem}"):
        for kind in _KINDS:
            for path in folder.glob(f"{begin}*-{kind}-*"):
                shutil.rmtree(path)
