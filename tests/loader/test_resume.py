"""A fit on batches that was interrupted ends as if it had not been."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.files import read_tensors
from training.interrupted import (
    assert_same_run,
    graph,
    interrupt,
    make,
    resuming,
    saving,
)

BATCHES = {"batch_size": 6, "batches_per_step": 2}
# A step so long that some are undone, and a yardstick that goes on for long.
TRUST = {"outer_step": "trust", "outer_lr": 0.01, "trust_radius": 0.5}
REFIT = {"refit_epochs": 2, "inner_steps": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "edges": ("gsebo", {}),
    "trust": ("gsebo", TRUST),
    "trust shares": ("gsebo", {**TRUST, "shard_strengths": True}),
    "adam": ("gsebo", {"outer_optimizer": "adam", "per_layer": True}),
    "shares": ("gsebo", {"shard_strengths": True, "select_by": "last"}),
    "cluster": ("gsebo", {"sampler": "cluster", "batch_size": 30}),
    "amortised": ("amortised", REFIT),
    "no table": ("amortised", {**REFIT, "residual": False}),
}
every_case = pytest.mark.parametrize("case", list(CASES))


@pytest.fixture(scope="module")
def data() -> Data:
    return graph()


def estimator(case: str, **changes: Any) -> Any:
    name, options = CASES[case]
    return make(name, **{**BATCHES, **options, **changes})


def tables(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


@pytest.mark.exact
@every_case
def test_a_resumed_fit_ends_the_same(case: str, data: Data, tmp_path: Path) -> None:
    interrupt(estimator(case), data, tmp_path, after=3)
    seen: list[int] = []
    resumed = estimator(case).fit(
        data, checkpoint=resuming(tmp_path), watcher=lambda r, _: seen.append(r.step)
    )
    assert seen == [4, 5, 6]
    assert_same_run(resumed, estimator(case).fit(data))
    # What is finished is not done again.
    again = estimator(case).fit(
        data, checkpoint=resuming(tmp_path), watcher=lambda r, _: seen.append(r.step)
    )
    assert len(seen) == 3
    assert_same_run(again, resumed)
    resuming(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exact
def test_shares_go_on_from_the_whole(data: Data, tmp_path: Path) -> None:
    interrupt(estimator("edges"), data, tmp_path)
    changed = estimator("edges", shard_strengths=True)
    resumed = changed.fit(data, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, estimator("edges").fit(data))


def test_what_the_file_names_is_there_and_nothing_else(
    data: Data, tmp_path: Path
) -> None:
    def look(record, logits) -> None:
        if record.step == 1:
            return
        _, facts = read_tensors(saving(tmp_path).path, "a checkpoint")
        named = {table["folder"] for table in facts["tables"].values()}
        assert {path.name for path in tables(tmp_path)} == named

    # What killed processes left: begun, or whole before the checkpoint named it.
    begun = tmp_path / ".checkpoint-table-3.0a.1b"
    whole = tmp_path / "checkpoint-table-3.0a"
    for left in (begun, whole):
        left.mkdir(parents=True)
    model = estimator("edges").fit(data, checkpoint=saving(tmp_path), watcher=look)
    assert not begun.exists()
    assert not whole.exists()
    assert_same_run(model, estimator("edges").fit(data))


def test_the_best_strengths_are_kept_alone(data: Data, tmp_path: Path) -> None:
    interrupt(estimator("adam"), data, tmp_path)
    kept = {
        path.name.split("-")[1]: {column.stem for column in path.iterdir()}
        for path in tables(tmp_path)
    }
    assert kept["best_table"] == {"change"}
    assert len(kept["table"]) == 3


def test_without_a_table_the_file_is_what_it_was(data: Data, tmp_path: Path) -> None:
    for model in (make("gsebo"), estimator("no table")):
        folder = tmp_path / type(model).__name__
        interrupt(model, data, folder)
        assert tables(folder) == []
        _, facts = read_tensors(saving(folder).path, "a checkpoint")
        assert list(facts) == [
            *("format", "fingerprint", "order", "step", "count", "outer_count"),
            *("best", "history", "tables"),
        ]
        assert facts["tables"] is None


@pytest.mark.parametrize("kind", ["table", "best_table"])
def test_a_lost_table_is_told(kind: str, data: Data, tmp_path: Path) -> None:
    interrupt(estimator("edges"), data, tmp_path)
    (lost,) = tmp_path.glob(f"checkpoint-{kind}-*")
    shutil.rmtree(lost)
    with pytest.raises(InvalidInput, match=f"needs {lost.name}, which is missing"):
        estimator("edges").fit(data, checkpoint=resuming(tmp_path))


@pytest.mark.parametrize("engine", ["unrolled", "first_order", "truncated"])
def test_engines_learn_on_batches(engine: str, data: Data) -> None:
    model = estimator("edges", hypergradient=engine, direct_term=True).fit(data)
    assert not torch.equal(model.strength_, model.initial_strength_)


def test_batches_apart_are_added_up_as_autograd_does(data: Data) -> None:
    options = {"dropout": 0.0, "direct_term": True, "select_by": "last"}
    reverse, unrolled = (
        estimator("edges", hypergradient=engine, **options).fit(data)
        for engine in ("reverse", "unrolled")
    )
    assert not torch.equal(reverse.strength_, reverse.initial_strength_)
    torch.testing.assert_close(reverse.strength_, unrolled.strength_)


def test_shares_need_batches(data: Data) -> None:
    model = make("gsebo", shard_strengths=True)
    with pytest.raises(InvalidInput, match="without batch_size; expected"):
        model.fit(data)
