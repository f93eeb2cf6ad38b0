"""Checkpoints: a killed fit goes on where it was and ends with the same result.

Dropout masks depend on the step number only, so the file needs no random state.
"""

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.errors import InvalidInput
from gsebo.files import check_writable, read_tensors, write_tensors
from gsebo.training.checkpoint_tables import CheckpointTables, remove_tables
from gsebo.training.distributed.group import Alone, Group
from gsebo.training.distributed.told import Content, agreed, told_by_first
from gsebo.training.history import StepRecord
from gsebo.training.progress import Progress

_STEM = "checkpoint"
_FILE = f"{_STEM}.safetensors"
_STAGE = f"{_STEM}-{{}}.safetensors"
_TABLES = "tables"
_TREES = ("weights", "slots", "outer", "outer_slots", "best_weights", "best_outer")


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

    def stage(self, name: int | str) -> "Checkpoint":
        """Where one of several trainings of a fit saves its own progress.

        A training that had ended is loaded as it ended, so that the next one goes on.
        """
        other = Checkpoint(
            self.path.parent, every_seconds=self.every_seconds, resume=self.resume
        )
        other.path = self.path.with_name(_STAGE.format(name))
        return other

    def prepare(self) -> None:
        """Raise now if the folder cannot be written."""
        check_writable(self.path.parent)

    def load(
        self,
        fingerprint: str,
        device: str,
        start: Progress | None = None,
        group: Group | None = None,
    ) -> Progress | None:
        """Return the stored progress, if there is any to resume.

        Args:
            fingerprint: Of graph, parameters and seed; another fit's file is refused.
            device: Where the tensors are wanted.
            start: The state before the first step; its table is filled, if it has one.
            group: Who trains together: the first process reads for all.
        """
        found = told_by_first(group or Alone(), partial(self._whole, fingerprint))
        if found is None:
            return None
        tensors, facts = found
        try:
            trees = {
                name: _pick(tensors, name, facts["order"][name], device)
                for name in _TREES
            }
            progress = _progress(trees, facts)
            if start is not None and start.table is not None:
                self._beside().load(progress, start, facts[_TABLES])
            return progress
        except (LookupError, TypeError) as error:
            raise InvalidInput(
                f"{self.path} is damaged ({error!r}); expected a whole checkpoint"
            ) from error

    def read(self, fingerprint: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what the file holds, if there is anything to resume.

        Args:
            fingerprint: Of graph, parameters and seed; another fit's file is refused.
        """
        if not self.resume or not self.path.exists():
            return None
        tensors, facts = read_tensors(self.path, "a checkpoint")
        if facts.get("fingerprint") != fingerprint:
            raise InvalidInput(
                f"{self.path} belongs to a fit with another graph, seed or parameters; "
                "expected the same ones, or start anew without resuming"
            )
        return tensors, facts

    def save(
        self,
        progress: Progress,
        fingerprint: str,
        *,
        force: bool,
        group: Group | None = None,
    ) -> None:
        """Write the progress if it is due.

        Args:
            progress: What to write.
            fingerprint: Of graph, parameters and seed.
            force: Write it in any case.
            group: Who trains together: the first process decides and writes.
        """
        group = group or Alone()
        is_due = time.monotonic() - self._last >= self.every_seconds
        if not (force or agreed(group, is_due)):
            return
        # The checkpoint must never name a table that is not there as a whole.
        names = None if progress.table is None else self._beside().save(progress)
        if group.is_first:
            self._write(progress, fingerprint, names)
        self._last = time.monotonic()

    def _write(
        self, progress: Progress, fingerprint: str, tables: dict[str, str] | None
    ) -> None:
        trees = dict(
            zip(
                _TREES,
                (
                    progress.iterate.weights,
                    progress.iterate.state.slots,
                    progress.outer,
                    progress.outer_state.slots,
                    progress.best_weights,
                    progress.best_outer,
                ),
                strict=True,
            )
        )
        tensors = {
            f"{name}:{key}": leaf
            for name in _TREES
            for key, leaf in trees[name].items()
        }
        facts = {
            "fingerprint": fingerprint,
            # A sum over a tree is rounded by its order, which the file does not keep.
            "order": {name: list(trees[name]) for name in _TREES},
            "step": progress.iterate.step,
            "count": progress.iterate.state.count,
            "outer_count": progress.outer_state.count,
            "best": None if progress.best is None else asdict(progress.best),
            "history": [asdict(record) for record in progress.history],
        }
        if tables is not None:
            facts[_TABLES] = tables
        write_tensors(self.path, tensors, facts)
        if tables is not None:
            self._beside().discard(tables)

    def _whole(self, fingerprint: str) -> Content | None:
        """What there is to resume, with all that it names."""
        self.prepare()
        found = self.read(fingerprint)
        if found is not None and _TABLES in found[1]:
            self._beside().check(found[1][_TABLES])
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


def _pick(tensors: dict[str, Tensor], name: str, keys: list[str], device: str) -> Tree:
    return {key: tensors[f"{name}:{key}"].to(device) for key in keys}


def _progress(trees: dict[str, Tree], facts: dict[str, Any]) -> Progress:
    if not (trees["weights"] and trees["best_weights"]):
        raise LookupError("weights")
    state = State(facts["count"], trees["slots"])
    best = facts["best"]
    return Progress(
        iterate=Iterate(trees["weights"], state, facts["step"]),
        outer=trees["outer"],
        outer_state=State(facts["outer_count"], trees["outer_slots"]),
        best_weights=trees["best_weights"],
        best_outer=trees["best_outer"],
        best=None if best is None else StepRecord.from_json(best),
        history=[StepRecord.from_json(record) for record in facts["history"]],
    )
