from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import final

import pytest

from gsebo.experiments import (
    ProcessEngine,
    Result,
    Runner,
    RunOutcome,
    RunWatcher,
    Slot,
    Stage,
    Store,
    TrialBatch,
    load_recipe,
)


@final
class Diary(RunWatcher):
    """Writes down what happens, and does what it was asked to at every batch."""

    def __init__(self, at_batch: Callable[[int], None] | None = None) -> None:
        self.stages: list[str] = []
        self.batches: list[TrialBatch] = []
        self.results: list[Result] = []
        self._at_batch = at_batch

    def stage_begins(
        self, stage: Stage, number: int, slots: Sequence[Slot], left: float | None
    ) -> None:
        self.stages.append(stage.recipe.name)

    def batch_begins(self, slot: Slot, batch: TrialBatch) -> None:
        self.batches.append(batch)
        if self._at_batch is not None:
            self._at_batch(len(self.batches))

    def batch_ends(
        self, slot: Slot, results: Sequence[Result], left: float | None
    ) -> None:
        self.results += results


RunRecipe = Callable[..., tuple[RunOutcome, Diary]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the results go."""
    return tmp_path / "results"


@pytest.fixture
def run_recipe(folder: Path) -> Iterator[RunRecipe]:
    """Run a recipe in worker processes of this one."""

    def run(
        path: Path,
        *,
        workers: int = 2,
        replicas: int = 1,
        at_batch: Callable[[int], None] | None = None,
        **wanted: object,
    ) -> tuple[RunOutcome, Diary]:
        store, diary = Store(folder), Diary(at_batch)
        slots = [Slot(str(number), replicas=replicas) for number in range(workers)]
        recipe, engine = load_recipe(str(path)), ProcessEngine(store, slots)
        return Runner(recipe, store, engine, diary, **wanted).run(), diary  # type: ignore[arg-type]

    yield run
