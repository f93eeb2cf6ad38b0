"""Checkpoints: a killed fit goes on where it was and ends with the same result.

Dropout masks depend on the step number only, so the file needs no random state.

Tables of numbers per edge beside a checkpoint, which names the folders they lie in.

A folder gets a name of its own each time: what a killed process had left there is never
taken for what the checkpoint means.
"""

import secrets
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar, final, get_args
from urllib.parse import quote

import msgspec
from msgspec import Meta
from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.distributed.group import (
    Alone,
    Content,
    Group,
    broadcast_content,
    decided_by_first,
)
from gsebo.distributed.tables import (
    EntryTable,
    check_table,
    discard_tables,
    load_table,
    save_table,
)
from gsebo.errors import InvalidInput, escaped
from gsebo.files import (
    Form,
    Name,
    Record,
    Sha256,
    Size,
    Text,
    check_tensors,
    check_writable,
    plain_as,
    read_tensors,
    require_format,
    write_tensors,
)
from gsebo.training.history import Progress, StepRecord

_Kind = Literal["table", "best_table"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)


class TableFacts(Record, frozen=True, kw_only=True):
    """Which table a checkpoint means: a folder beside it, and checksums of columns."""

    folder: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.%+-]{0,250}$")]
    columns: dict[Name, Sha256]


Tables = dict[_Kind, TableFacts]
"""Each table that there is."""


@final
class CheckpointTables:
    """Tables that belong to the checkpoint in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: tuple[int, TableFacts] | None = None

    def save(self, progress: Progress) -> Tables:
        """Write the tables; all processes take part, and the first one writes.

        The best one stays as it is until there is a better one.
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
        """Raise if a table is not there, or is not the one that was written."""
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
        """Read the tables; all processes take part, and the first one reads."""
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
    """Delete the tables of all checkpoints in a folder whose names begin so."""
    for begin in (stem, f".{stem}"):
        for kind in _KINDS:
            for path in folder.glob(f"{begin}*-{kind}-*"):
                shutil.rmtree(path)


FORMAT = 2
"""What files of checkpoints say that they are."""
_STEM = "checkpoint"
_FILE = f"{_STEM}.safetensors"
_STAGE = f"{_STEM}-{{}}.safetensors"
_WHAT = "a whole, undamaged checkpoint"
_Tree = Literal[
    "weights", "slots", "outer", "outer_slots", "best_weights", "best_outer"
]
_TREES: tuple[_Tree, ...] = get_args(_Tree)


class CheckpointFacts(Record, frozen=True, kw_only=True):
    """What every file of a checkpoint says; subclasses have more to say."""

    format: int
    fingerprint: Text


class _TrainingFacts(CheckpointFacts, frozen=True, kw_only=True):
    """How far a training has come.

    ``order`` has the names of each tree: a sum over it is rounded by their order, which
    tensors in a file do not have.
    """

    order: dict[_Tree, list[Text]]
    step: Size
    count: Size
    outer_count: Size
    best: StepRecord | None
    history: list[StepRecord]
    tables: Tables | None = None


Facts = TypeVar("Facts", bound=CheckpointFacts)


class Checkpoint:
    """Where a fit saves its progress.

    Args:
        folder: Where the file lies.
        every_seconds: How much work may be lost; 0 saves after every step.
        resume: Go on from the file, if there is one.
    """

    def __init__(
        self, folder: Path | str, *, every_seconds: float = 10.0, resume: bool = False
    ) -> None:
        self.path = Path(folder) / _FILE
        self.every_seconds = every_seconds
        self.resume = resume
        self._last = time.monotonic()
        self._tables: CheckpointTables | None = None
        self._within = ""

    def stage(self, name: int | str) -> "Checkpoint":
        """Where one of several trainings of a fit saves its own progress.

        A training that had ended is loaded as it ended, so that the next one goes on.
        """
        other = Checkpoint(
            self.path.parent, every_seconds=self.every_seconds, resume=self.resume
        )
        # Whatever the name is, it names a file in this folder; within a stage one of
        # its own, because other trainings have stages by the same name.
        own = f"{self._within}{name}"
        other.path = self.path.with_name(_STAGE.format(quote(own, safe="+")))
        other._within = f"{own}+"
        return other

    def prepare(self) -> None:
        """Raise now if the folder cannot be written."""
        check_writable(self.path.parent)

    def load(
        self,
        fingerprint: str,
        device: str,
        start: Progress,
        group: Group | None = None,
    ) -> Progress | None:
        """Return the stored progress, if there is any to resume.

        Another fit's file is refused by its fingerprint, and what is not of the form
        of the state before the first step, whose table is filled. The first process
        reads for all.
        """
        found = broadcast_content(
            group or Alone(), partial(self._whole, fingerprint, start)
        )
        if found is None:
            return None
        tensors, told = found
        facts = self._as(_TrainingFacts, told)
        trees = self._trees(tensors, facts, start)
        progress = _progress(trees, facts, device)
        if facts.tables is not None:
            self._beside().load(progress, start, facts.tables)
        return progress

    def read(
        self, fingerprint: str, kind: type[Facts]
    ) -> tuple[dict[str, Tensor], Facts] | None:
        """Return tensors and checked facts of the file, if there is any to resume."""
        found = self._found(fingerprint)
        return None if found is None else (found[0], self._as(kind, found[1]))

    def write(self, tensors: dict[str, Tensor], facts: CheckpointFacts) -> None:
        """Write the file."""
        write_tensors(self.path, tensors, msgspec.to_builtins(facts))

    def _found(self, fingerprint: str) -> Content | None:
        if not self.resume or not self._is_there():
            return None
        tensors, facts = read_tensors(self.path, _WHAT)
        require_format(facts, FORMAT, f"{self.path}")
        if facts.get("fingerprint") != fingerprint:
            raise InvalidInput(
                f"{escaped(str(self.path))} belongs to a fit with another graph, seed "
                "or parameters; expected the same ones, or start anew without resuming"
            )
        return tensors, facts

    def _is_there(self) -> bool:
        # A path that cannot be looked at is told when it is written to.
        try:
            return self.path.exists()
        except OSError:
            return False

    def _as(self, kind: type[Facts], facts: object) -> Facts:
        return plain_as(kind, facts, f"{self.path}", _WHAT)

    def _trees(
        self, tensors: dict[str, Tensor], facts: _TrainingFacts, start: Progress
    ) -> dict[_Tree, Tree]:
        """The tensors as trees, each leaf of the form that it had at the start.

        A tree may have grown since: optimisers remember what they like.
        """
        named = [f"{tree}:{name}" for tree in facts.order for name in facts.order[tree]]
        if facts.order.keys() != {*_TREES} or sorted(named) != sorted(tensors):
            raise InvalidInput(
                f"{escaped(str(self.path))} is damaged (it names other tensors than it "
                f"holds); expected {_WHAT}"
            )
        forms: dict[str, Form] = {}
        for tree in _TREES:
            begun = _tree_of(start, _BEGINS_AS.get(tree, tree))
            for name in {**dict.fromkeys(facts.order[tree]), **begun}:
                found = tensors.get(f"{tree}:{name}")
                like = begun.get(name, found)
                if like is not None:
                    forms[f"{tree}:{name}"] = _form(like, found)
        check_tensors(tensors, forms, f"{self.path}")
        return {
            tree: {name: tensors[f"{tree}:{name}"] for name in facts.order[tree]}
            for tree in _TREES
        }

    def save(
        self,
        progress: Progress,
        fingerprint: str,
        *,
        force: bool,
        group: Group | None = None,
    ) -> None:
        """Write the progress if it is due, which the first process decides."""
        group = group or Alone()
        is_due = time.monotonic() - self._last >= self.every_seconds
        if not (force or decided_by_first(group, is_due)):
            return
        # The checkpoint must never name a table that is not there as a whole.
        names = None if progress.table is None else self._beside().save(progress)
        if group.is_first:
            self._write(progress, fingerprint, names)
        self._last = time.monotonic()

    def _write(
        self, progress: Progress, fingerprint: str, tables: Tables | None
    ) -> None:
        trees = {tree: _tree_of(progress, tree) for tree in _TREES}
        tensors = {
            f"{tree}:{name}": leaf
            for tree in _TREES
            for name, leaf in trees[tree].items()
        }
        facts = _TrainingFacts(
            format=FORMAT,
            fingerprint=fingerprint,
            order={tree: list(trees[tree]) for tree in _TREES},
            step=progress.iterate.step,
            count=progress.iterate.state.count,
            outer_count=progress.outer_state.count,
            best=progress.best,
            history=progress.history,
            tables=tables,
        )
        self.write(tensors, facts)
        if tables is not None:
            self._beside().discard(tables)

    def _whole(self, fingerprint: str, start: Progress) -> Content | None:
        """What there is to resume, with all that it names."""
        self.prepare()
        found = self._found(fingerprint)
        if found is not None:
            facts = self._as(_TrainingFacts, found[1])
            self._beside().check(facts.tables or {}, start)
        return found

    def _beside(self) -> CheckpointTables:
        """The tables that belong to the file."""
        if self._tables is None:
            self._tables = CheckpointTables(self.path)
        return self._tables

    def remove(self) -> None:
        """Delete what was saved once the fit is finished and stored elsewhere."""
        self.path.unlink(missing_ok=True)
        for path in self.path.parent.glob(_STAGE.format("*")):
            path.unlink()
        remove_tables(self.path.parent, _STEM)


def _tree_of(progress: Progress, tree: _Tree) -> Tree:
    trees: dict[_Tree, Tree] = {
        "weights": progress.iterate.weights,
        "slots": progress.iterate.state.slots,
        "outer": progress.outer,
        "outer_slots": progress.outer_state.slots,
        "best_weights": progress.best_weights,
        "best_outer": progress.best_outer,
    }
    return trees[tree]


# What was best is of the form of what is trained; at the start nothing is best.
_BEGINS_AS: dict[_Tree, _Tree] = {"best_weights": "weights", "best_outer": "outer"}


def _form(start: Tensor, found: Tensor | None) -> Form:
    """That of the start; an axis that had nothing on it then may have grown."""
    shape = tuple(start.shape)
    if found is not None and found.dim() == len(shape):
        grown = zip(shape, found.shape, strict=True)
        shape = tuple(now if begun == 0 else begun for begun, now in grown)
    return Form(start.dtype, shape)


def _progress(
    stored: dict[_Tree, Tree], facts: _TrainingFacts, device: str
) -> Progress:
    trees = {
        tree: {name: leaf.to(device) for name, leaf in leaves.items()}
        for tree, leaves in stored.items()
    }
    return Progress(
        iterate=Iterate(
            trees["weights"], State(facts.count, trees["slots"]), facts.step
        ),
        outer=trees["outer"],
        outer_state=State(facts.outer_count, trees["outer_slots"]),
        best_weights=trees["best_weights"],
        best_outer=trees["best_outer"],
        best=facts.best,
        history=facts.history,
    )
