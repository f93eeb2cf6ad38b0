"""What was learned is measured by the same training on the given graph."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gsebo
from gsebo.bilevel import Iterate, State
from gsebo.training.history import Patience, Progress, StepRecord
from gsebo.training.loop import LoopSettings
from gsebo.training.trainer import beside, is_preferable

# The folders of tests are packages side by side.
from methods.batch_examples import WHOLE

RECORD = StepRecord(1, 10, 1.0, 1.0, 0.5, 0.5, 0, 1.0, 0.0)
PATIENCE = Patience("loss", 5)


def progress(losses: list[float]) -> Progress:
    history = [
        replace(RECORD, step=number, val_loss=loss)
        for number, loss in enumerate(losses, 1)
    ]
    best = min(history, key=lambda record: record.val_loss)
    state = Iterate({}, State(0, {}), 0)
    return Progress(state, {}, State(0, {}), history=history, best=best)


@pytest.mark.parametrize(
    ("given", "learned", "expected"),
    [
        ([3, 2, 1], [3, 2, 0.5], False),
        ([3, 2, 0.4], [3, 1, 0.5], True),
        ([3, 2, 1, 0.9], [3, 2.1, 1.1, 0.95, 0.1], True),
        ([3, 2, 1, 0.9], [3, 2.1, 0.8, 0.5, 0.4], False),
        ([1, 1, 1], [1, 1, 1], False),
    ],
)
def test_which_is_kept(
    given: list[float], learned: list[float], expected: bool
) -> None:
    assert is_preferable(progress(given), progress(learned), PATIENCE) is expected
    last = Patience("last", 5)
    if expected is False:
        assert is_preferable(progress(given), progress(learned), last) is expected


def test_a_yardstick_that_trails_for_so_long_ends() -> None:
    settings = LoopSettings(100, PATIENCE, torch.zeros(0), "")
    learned = progress([5.0, 4.0, 3.0, 2.0, 1.0, 0.9, 0.8])
    gives_up = beside(learned, settings).gives_up
    assert gives_up is not None
    assert not gives_up(progress([5.1, 4.1, 3.1, 2.1]).history)
    assert gives_up(progress([5.1, 4.1, 3.1, 2.1, 1.1]).history)
    assert not gives_up(progress([5.1, 3.9, 3.1, 2.1, 1.1, 1.0]).history)
    # Beyond the end of the other training there is nothing to trail.
    assert not gives_up(progress([6.0, 5.0, 4.0, 3.0, 2.0, 0.5] + [9.0] * 8).history)


def test_a_graph_that_steps_would_ruin_stays_as_it_is() -> None:
    data = gsebo.add_inter_class_edges(gsebo.load_data("cora"), 20_000, seed=0)
    frozen = gsebo.Frozen(random_state=0).fit(data)
    fitted = gsebo.GSEBO(random_state=0).fit(data)
    assert torch.equal(fitted.strength_, fitted.initial_strength_)
    assert torch.equal(fitted.probability_, frozen.probability_)


def test_the_literal_step_is_not_measured() -> None:
    data = gsebo.add_inter_class_edges(gsebo.load_data("cora"), 20_000, seed=0)
    paper = gsebo.GSEBO(outer_step="paper", max_outer_steps=3, random_state=0).fit(data)
    assert not torch.equal(paper.strength_, paper.initial_strength_)


def test_replicas_and_resumed_fits_keep_the_same(tmp_path: Path) -> None:
    data = gsebo.add_inter_class_edges(gsebo.load_data("cora"), 20_000, seed=0)
    model = gsebo.GSEBO(max_outer_steps=15, patience=12, random_state=0)
    together = model.fit(data, replicas=2).replicas_
    for seed, replica in enumerate(together):
        alone = gsebo.GSEBO(max_outer_steps=15, patience=12, random_state=seed)
        folder = tmp_path / str(seed)
        alone.fit(data, checkpoint=gsebo.Checkpoint(folder, every_seconds=0))
        assert torch.equal(alone.probability_, replica.probability_)
        assert torch.equal(alone.strength_, replica.strength_)
        again = gsebo.GSEBO(max_outer_steps=15, patience=12, random_state=seed)
        again.fit(data, checkpoint=gsebo.Checkpoint(folder, resume=True))
        assert torch.equal(again.probability_, alone.probability_)


@pytest.mark.parametrize("given", [True, False])
def test_batches_of_a_graph_are_measured_too(given: bool) -> None:
    data, steps = gsebo.load_data("cora"), 2
    if given:
        data, steps = gsebo.add_inter_class_edges(data, 20_000, seed=0), 26
    model = gsebo.GSEBO(**WHOLE, max_outer_steps=steps, random_state=0).fit(data)
    whole = gsebo.GSEBO(max_outer_steps=steps, random_state=0).fit(data)
    assert torch.equal(model.strength_, model.initial_strength_) is given
    assert torch.equal(model.probability_, whole.probability_)
    assert torch.equal(model.strength_, whole.strength_)
