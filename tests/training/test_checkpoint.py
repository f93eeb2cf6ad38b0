"""A fit that was interrupted ends as if it had not been."""

from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import Data

from gsebo import Checkpoint
from gsebo.bilevel import Reverse

from .conftest import Folders
from .interrupted import (
    assert_same_run,
    every_method,
    interrupt,
    left_alone,
    make,
    resuming,
    saving,
    with_optimizer,
)

pytestmark = pytest.mark.exact

# Those that train several times in one fit.
STAGED = {"adaedge", "auto", "gen", "retrain", "sublime"}


@every_method
@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd"])
def test_a_fit_that_is_resumed_twice_ends_the_same(
    name: str, optimizer: str, data: Data, tmp_path: Path
) -> None:
    """Killed once near its begin and once near its end."""
    interrupt(with_optimizer(name, optimizer), data, tmp_path, after=1)
    again = with_optimizer(name, optimizer)
    before = interrupt(again, data, tmp_path, after=4, resume=True)
    after: list[int] = []
    resumed = with_optimizer(name, optimizer).fit(
        data, checkpoint=resuming(tmp_path), watcher=lambda r, _: after.append(r.step)
    )
    assert_same_run(resumed, left_alone(name, optimizer))
    if name not in STAGED:
        assert (before, after) == ([2, 3, 4, 5], [5, 6])
    seconds = [record.seconds for record in resumed.history_]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    "options",
    [
        {"backbone": "gat"},
        {"per_layer": True},
        {"stop_on": "holdout", "select_by": "accuracy"},
        {"structure": "fixed"},
        {"hypergradient": Reverse(direct_term=True, horizon=2)},
        {"weight_decay": 0},
        {"inner_reduction": "sum"},
        {"backbone": "GATv2"},
        {"labels": "train"},
        {"consistency": 1.0, "num_views": 2, "warmup": 9},
    ],
    ids=str,
)
def test_other_options_resume_too(
    options: dict[str, Any], data: Data, tmp_path: Path
) -> None:
    interrupt(make("gsebo", **options), data, tmp_path)
    resumed = make("gsebo", **options).fit(data, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make("gsebo", **options).fit(data))


@pytest.mark.parametrize("methods", ["vanilla,mlp,amortised", "vanilla,gsebo"])
def test_a_choice_by_few_labels_resumes_too(
    methods: str, data: Data, tmp_path: Path
) -> None:
    """Trainings of its candidates, which may be several each, are kept apart."""
    options = {"labels": "train", "methods": methods}
    interrupt(make("auto", **options), data, tmp_path, after=1)
    resumed = make("auto", **options).fit(data, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make("auto", **options).fit(data))


@every_method
def test_saving_does_not_change_a_fit(name: str, data: Data, tmp_path: Path) -> None:
    saved = make(name).fit(data, checkpoint=saving(tmp_path))
    assert_same_run(saved, left_alone(name))
    # What is finished is not done again.
    seen = []
    again = make(name).fit(
        data, checkpoint=resuming(tmp_path), watcher=lambda r, _: seen.append(r)
    )
    assert seen == []
    assert_same_run(again, saved)


@every_method
def test_with_nothing_to_resume_a_fit_begins(
    name: str, data: Data, tmp_path: Path
) -> None:
    fresh = make(name).fit(data, checkpoint=resuming(tmp_path / "new"))
    assert_same_run(fresh, left_alone(name))


@every_method
def test_without_resume_a_fit_begins_anew(
    name: str, data: Data, tmp_path: Path
) -> None:
    interrupt(make(name, random_state=1), data, tmp_path, after=1)
    fresh = make(name).fit(data, checkpoint=saving(tmp_path))
    assert_same_run(fresh, left_alone(name))


@every_method
def test_test_labels_are_no_part_of_a_fit(
    name: str, data: Data, interrupted: Folders
) -> None:
    hidden = data.clone()
    hidden.y[data.test_mask] = -1
    resumed = make(name).fit(hidden, checkpoint=resuming(interrupted(name)))
    assert_same_run(resumed, left_alone(name))


def test_half_precision_features_have_a_fingerprint(data: Data, tmp_path: Path) -> None:
    half = data.clone()
    half.x = data.x.bfloat16()
    interrupt(make("vanilla"), half, tmp_path)
    resumed = make("vanilla").fit(half, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make("vanilla").fit(half))


# --- the file ------------------------------------------------------------------------


def test_the_file_is_written_now_and_then(data: Data, tmp_path: Path) -> None:
    never = Checkpoint(tmp_path, every_seconds=1e9)
    present = []
    make("vanilla").fit(
        data, checkpoint=never, watcher=lambda *_: present.append(never.path.exists())
    )
    assert not any(present)
    assert never.path.exists()
    assert [path.name for path in tmp_path.iterdir()] == [never.path.name]
    never.remove()
    never.remove()
    assert list(tmp_path.iterdir()) == []
