"""Watchers: they see every step, and may end a fit with everything valid."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from examples.watch_tensorboard import to_tensorboard
from examples.watch_wandb import no_longer_than, to_wandb
from torch import Tensor

import gsebo
from gsebo import Checkpoint, InvalidInput
from gsebo.data.formats.folder import write_folder
from gsebo.training import StepRecord
from methods.examples import NAMES, assert_same_fit, quick, small_graph


class StopAt:
    """Ends a training at a step; knows what it was told."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.told: list[int] = []

    def __call__(self, record: StepRecord, logits: Tensor) -> bool:
        assert logits.shape == (60, 2)
        self.told.append(record.step)
        return record.step >= self.step


@pytest.mark.parametrize("name", NAMES)
def test_every_method_can_be_stopped_at_its_first_step(
    name: str, tmp_path: Path
) -> None:
    graph, watcher = small_graph(), StopAt(1)
    model = quick(name).fit(graph, watcher=watcher)
    assert set(watcher.told) == {1}
    assert len(model.history_) == model.best_step_ == 1
    found = model.predict_proba(graph)
    torch.testing.assert_close(found, model.probability_, atol=1e-5, rtol=1e-5)
    assert bool(model.strength_.isfinite().all())
    model.save(tmp_path / "m")
    again = gsebo.load_model(tmp_path / "m")
    torch.testing.assert_close(again.probability_, model.probability_)


@pytest.mark.parametrize("name", ["gsebo", "amortised", "vanilla"])
def test_the_steps_before_are_those_of_the_whole_fit(name: str) -> None:
    graph = small_graph()
    whole = quick(name).fit(graph)
    cut = quick(name).fit(graph, watcher=StopAt(2))
    first = [record.val_loss for record in whole.history_[:2]]
    assert [record.val_loss for record in cut.history_] == first
    assert cut.best_step_ <= 2


def test_a_stopped_fit_is_one_of_so_many_steps() -> None:
    graph = small_graph()
    for outer_step in ("paper", "trust"):
        options = {"outer_step": outer_step, "inner_steps": 3, "random_state": 0}
        short = gsebo.GSEBO(max_outer_steps=2, **options).fit(graph)
        long = gsebo.GSEBO(max_outer_steps=40, **options)
        assert_same_fit(long.fit(graph, watcher=StopAt(2)), short)


def test_replicas_stop_one_by_one() -> None:
    graph = small_graph()
    watcher = StopAt(2)
    model = quick("gsebo").fit(graph, replicas=3, watcher=watcher)
    assert sorted(watcher.told) == [1, 1, 1, 2, 2, 2]
    for number, replica in enumerate(model.replicas_):
        alone = quick("gsebo", random_state=number).fit(graph, watcher=StopAt(2))
        assert_same_fit(replica, alone)


def test_batches_and_folders(tmp_path: Path) -> None:
    graph = small_graph()
    folder = write_folder(graph, tmp_path / "g")

    def stop(record: StepRecord, logits: Tensor) -> bool:
        return record.step >= 2

    for name in ("gsebo", "amortised"):
        for where in (graph, folder):
            model = quick(name, batch_size=16).fit(where, watcher=stop)
            assert len(model.history_) == 2
            assert model.predict_proba(where).shape == (60, 2)


def test_a_stopped_fit_with_a_checkpoint_goes_on(tmp_path: Path) -> None:
    graph = small_graph()
    place = tmp_path / "c"
    quick("gsebo").fit(graph, checkpoint=Checkpoint(place), watcher=StopAt(2))
    going_on = quick("gsebo").fit(graph, checkpoint=Checkpoint(place, resume=True))
    assert_same_fit(going_on, quick("gsebo").fit(graph))
    assert len(going_on.history_) == 4


def test_several_are_all_told_and_nothing_but_true_stops() -> None:
    first, second, told = StopAt(3), StopAt(2), []

    def careless(record: StepRecord, logits: Tensor) -> Any:
        told.append(record.step)
        return told

    model = quick("gsebo").fit(small_graph(), watcher=[first, careless, second])
    assert first.told == second.told == told == [1, 2]
    assert len(model.history_) == 2
    assert len(quick("gsebo").fit(small_graph(), watcher=careless).history_) == 4


def test_what_cannot_watch() -> None:
    for watcher in ([3], ["print"], 3):
        with pytest.raises(InvalidInput, match="expected a function"):
            quick("gsebo").fit(small_graph(), watcher=watcher)
    with pytest.raises(InvalidInput, match="verbose='loud'"):
        quick("gsebo").fit(small_graph(), verbose="loud")


@pytest.mark.parametrize("name", ["gsebo", "auto"])
def test_verbose_says_lines_where_no_bar_can_be(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(name).fit(small_graph(), verbose=True)
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert out == "" and " of 4  val loss " in last and last.endswith(" s")
    quick(name).fit(small_graph())
    assert capsys.readouterr() == ("", "")


def test_verbose_draws_a_bar_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    quick("gsebo").fit(small_graph(), verbose=True)
    err = capsys.readouterr().err
    assert "GSEBO" in err and "4/4" in err and "val loss" in err


def test_a_fit_without_anywhere_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service whose streams are closed."""
    monkeypatch.setattr(sys, "stderr", None)
    assert quick("gsebo").fit(small_graph(), verbose=True).history_


class Recorder:
    """What a writer of TensorBoard and a run of W&B are, for a watcher."""

    def __init__(self) -> None:
        self.scalars: dict[tuple[str, int], float] = {}
        self.sizes: set[int] = set()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars[tag, step] = value

    def add_histogram(self, tag: str, values: Tensor, step: int) -> None:
        self.sizes.add(values.numel())

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.scalars |= {(name, step): each for name, each in numbers.items()}


def test_the_examples_watch() -> None:
    board, run = Recorder(), Recorder()
    model = quick("gsebo")
    model.fit(small_graph(), watcher=[to_tensorboard(board), to_wandb(run)])
    for record in model.history_:
        assert board.scalars["loss/validation", record.step] == record.val_loss
        assert run.scalars["val_accuracy", record.step] == record.val_accuracy
        assert run.scalars["changed_edges", record.step] == record.changed_edges
    assert board.sizes == {60}
    stopped = quick("gsebo").fit(small_graph(), watcher=no_longer_than(-1))
    assert len(stopped.history_) == 1
