"""Checkpoints of several processes: the first one writes and reads for all."""

from pathlib import Path

import pytest
import torch

from distributed.test_tables import COLUMNS, filled
from distributed.thread_group import together
from gsebo import Checkpoint, InvalidInput
from gsebo.bilevel import Iterate, State
from gsebo.distributed import EntryTable, Group
from gsebo.training import Progress, StepRecord

TOTAL = 37
BEST = StepRecord(2, 20, 0.5, 0.4, 0.9, 0.8, None, None, 1.0)


def state(group: Group, *, sharded: bool) -> Progress:
    weights = {"flat": torch.arange(5.0)}
    return Progress(
        iterate=Iterate(weights, State(30, {"mean/flat": torch.ones(5)}), 30),
        outer={},
        outer_state=State(3, {}),
        best_weights=weights,
        best=BEST,
        history=[BEST],
        table=filled(group, TOTAL, 1, sharded=sharded),
        best_table=filled(group, TOTAL, 2, sharded=sharded).copy(["change"]),
        own_columns=("change",),
    )


def start(group: Group, *, sharded: bool) -> Progress:
    table = EntryTable(COLUMNS, TOTAL, group, sharded=sharded)
    iterate = Iterate({"flat": torch.zeros(5)}, State(0, {}), 0)
    return Progress(iterate, {}, State(0, {}), table=table, own_columns=("change",))


def own_folder(folder: Path, group: Group) -> Path:
    """Of a machine of its own: the others see nothing of it."""
    return folder / f"machine-{group.rank}"


def save(folder: Path, size: int, *, sharded: bool, times: int = 1) -> None:
    def work(group: Group) -> None:
        place = Checkpoint(own_folder(folder, group), every_seconds=0)
        for _ in range(times):
            place.save(state(group, sharded=sharded), "f", force=False, group=group)

    together(size, work)


@pytest.mark.exact
@pytest.mark.parametrize("saved_sharded", [False, True])
@pytest.mark.parametrize("loaded_sharded", [False, True])
@pytest.mark.parametrize(("savers", "loaders"), [(2, 3), (3, 1), (1, 2)])
def test_any_number_goes_on_from_what_the_first_has_saved(
    tmp_path: Path, saved_sharded: bool, loaded_sharded: bool, savers: int, loaders: int
) -> None:
    save(tmp_path, savers, sharded=saved_sharded, times=2)
    assert [path.name for path in tmp_path.iterdir()] == ["machine-0"]
    names = sorted(path.name for path in (tmp_path / "machine-0").iterdir())
    # One of each, though it was saved twice.
    assert [name.rpartition("-")[0] for name in names] == [
        *("checkpoint-best_table", "checkpoint-table", "")
    ]

    def load(group: Group) -> None:
        place = Checkpoint(own_folder(tmp_path, group), resume=True)
        begun = start(group, sharded=loaded_sharded)
        found = place.load("f", "cpu", begun, group)
        assert found is not None
        expected = state(group, sharded=False)
        assert found.table is begun.table
        assert found.history == expected.history
        assert torch.equal(found.iterate.weights["flat"], torch.arange(5.0))
        every = torch.arange(TOTAL)
        for mine, theirs in (
            (found.table, expected.table),
            (found.best_table, expected.best_table),
        ):
            assert mine is not None
            assert theirs is not None
            assert mine.columns == theirs.columns
            values, others = mine.take(every), theirs.take(every)
            assert all(torch.equal(values[name], others[name]) for name in values)

    together(loaders, load)
    assert [path.name for path in tmp_path.iterdir()] == ["machine-0"]


def test_the_first_decides_when_to_save(tmp_path: Path) -> None:
    def work(group: Group) -> bool:
        every = 0.0 if group.is_first else 1e9
        place = Checkpoint(tmp_path, every_seconds=every)
        # With shares, whoever did not take part would let the others wait.
        place.save(state(group, sharded=True), "f", force=False, group=group)
        return place.path.exists()

    together(3, work)
    assert (tmp_path / "checkpoint.safetensors").exists()


def test_nothing_to_resume_is_told_to_all(tmp_path: Path) -> None:
    def work(group: Group) -> Progress | None:
        place = Checkpoint(own_folder(tmp_path, group), resume=True)
        return place.load("f", "cpu", start(group, sharded=True), group)

    assert together(3, work) == [None] * 3


def test_another_fit_is_refused_by_all(tmp_path: Path) -> None:
    save(tmp_path, 2, sharded=True)

    def work(group: Group) -> None:
        place = Checkpoint(own_folder(tmp_path, group), resume=True)
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            place.load("g", "cpu", start(group, sharded=True), group)

    together(2, work)
