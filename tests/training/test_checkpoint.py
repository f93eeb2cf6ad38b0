"""A fit that was interrupted ends as if it had not been."""

from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import Checkpoint, InvalidInput, generate_graph
from gsebo.bilevel import Reverse
from gsebo.files import read_tensors, write_tensors
from gsebo.methods import METHODS, GraphClassifier
from gsebo.structure import EdgeStrength

# The folders of tests are packages side by side.
from methods.examples import QUICK_OF, supported

# Six looks at the validation nodes, whichever of these a method takes.
SCHEDULE = {
    "inner_steps": 3,
    "max_outer_steps": 6,
    "outer_lr": 0.1,
    "max_epochs": 16,
    "evaluate_every": 3,
    "max_episodes": 6,
    "hidden_channels": 8,
    "random_state": 0,
}
# Two networks take turns: a look is taken when both have moved.
_TWICE = {"amortised": {"max_outer_steps": 12}}
# Those that train several times in one fit.
STAGED = {"adaedge", "auto", "retrain"}
every_method = pytest.mark.parametrize("name", list(METHODS))


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(50, average_degree=4.0, split="random:20/30/50")


def make(name: str, **changes: Any) -> GraphClassifier:
    estimator = METHODS[name].estimator
    taken = signature(estimator).parameters
    schedule = {k: v for k, v in SCHEDULE.items() if k in taken}
    schedule |= _TWICE.get(name, {})
    return estimator(**QUICK_OF.get(name, {}) | schedule | changes)


class Killed(Exception):
    pass


def interrupt(
    model: GraphClassifier, data: Data, folder: Path, *, after: int = 3
) -> None:
    """Fit, and be killed in the middle of step ``after + 1``."""

    def watcher(record, logits) -> None:
        if record.step > after:
            raise Killed

    with pytest.raises(Killed):
        model.fit(data, checkpoint=saving(folder), watcher=watcher)
    assert not hasattr(model, "model_")


def saving(folder: Path) -> Checkpoint:
    return Checkpoint(folder, every_seconds=0)


def resuming(folder: Path) -> Checkpoint:
    return Checkpoint(folder, every_seconds=0, resume=True)


def assert_same_run(left: GraphClassifier, right: GraphClassifier) -> None:
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert left.best_step_ == right.best_step_
    histories = [
        [replace(record, seconds=0.0) for record in model.history_]
        for model in (left, right)
    ]
    assert histories[0] == histories[1]


@every_method
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd"])
def test_a_resumed_fit_ends_the_same(
    name: str, after: int, optimizer: str, data: Data, tmp_path: Path
) -> None:
    options = {"inner_optimizer": optimizer}
    if "outer_optimizer" in make(name).get_params():
        options["outer_optimizer"] = optimizer
    interrupt(make(name, **options), data, tmp_path, after=after)
    seen = []
    resumed = make(name, **options).fit(
        data, checkpoint=resuming(tmp_path), watcher=lambda r, _: seen.append(r.step)
    )
    assert_same_run(resumed, make(name, **options).fit(data))
    if name not in STAGED:
        assert seen == list(range(after + 1, 7))
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
        {"backbone": "GATv2"},
    ],
    ids=str,
)
def test_other_options_resume_too(
    options: dict[str, Any], data: Data, tmp_path: Path
) -> None:
    interrupt(make("gsebo", **options), data, tmp_path)
    resumed = make("gsebo", **options).fit(data, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make("gsebo", **options).fit(data))


@every_method
def test_interrupted_twice(name: str, data: Data, tmp_path: Path) -> None:
    interrupt(make(name), data, tmp_path, after=2)

    def watcher(record, logits) -> None:
        if record.step == 5:
            raise Killed

    with pytest.raises(Killed):
        make(name).fit(data, checkpoint=resuming(tmp_path), watcher=watcher)
    resumed = make(name).fit(data, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make(name).fit(data))


@every_method
def test_saving_does_not_change_a_fit(name: str, data: Data, tmp_path: Path) -> None:
    saved = make(name).fit(data, checkpoint=saving(tmp_path))
    assert_same_run(saved, make(name).fit(data))
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
    assert_same_run(fresh, make(name).fit(data))


@every_method
def test_without_resume_a_fit_begins_anew(
    name: str, data: Data, tmp_path: Path
) -> None:
    interrupt(make(name), data, tmp_path)
    fresh = make(name, random_state=1).fit(data, checkpoint=saving(tmp_path))
    assert_same_run(fresh, make(name, random_state=1).fit(data))


@every_method
def test_test_labels_are_no_part_of_a_fit(
    name: str, data: Data, tmp_path: Path
) -> None:
    interrupt(make(name), data, tmp_path)
    hidden = data.clone()
    hidden.y[data.test_mask] = -1
    resumed = make(name).fit(hidden, checkpoint=resuming(tmp_path))
    assert_same_run(resumed, make(name).fit(data))


# --- refused -------------------------------------------------------------------------


def other_graphs(data: Data) -> dict[str, Data]:
    changed = {key: data.clone() for key in ("x", "dtype", "edges", "y", "masks")}
    changed["x"].x[0, 0] += 1
    changed["dtype"].x = data.x.double()
    changed["edges"].edge_index = data.edge_index[:, 1:]
    known = data.val_mask.nonzero()[0]
    changed["y"].y[known] = 1 - data.y[known]
    changed["masks"].val_mask[known] = False
    return changed


@every_method
def test_another_graph_is_refused(name: str, data: Data, tmp_path: Path) -> None:
    interrupt(make(name), data, tmp_path)
    for other in other_graphs(data).values():
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make(name).fit(other, checkpoint=resuming(tmp_path))


@every_method
@pytest.mark.parametrize(
    "changes",
    [{"random_state": 1}, {"inner_lr": 0.03}, {"backbone": "sage"}, {"dropout": 0.4}],
    ids=str,
)
def test_another_fit_is_refused(
    name: str, changes: dict[str, Any], data: Data, tmp_path: Path
) -> None:
    if not supported(name, changes.get("backbone", make(name).backbone)):
        pytest.skip(f"{name} has other networks")
    if name == "retrain" and not {"random_state", "backbone"} & changes.keys():
        pytest.skip("its first training is another method's, without this parameter")
    interrupt(make(name), data, tmp_path)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make(name, **changes).fit(data, checkpoint=resuming(tmp_path))


def test_another_method_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo"), data, tmp_path)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("frozen").fit(data, checkpoint=resuming(tmp_path))


def test_another_engine_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", hypergradient=Reverse(horizon=2)), data, tmp_path)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("gsebo", hypergradient=Reverse(horizon=3)).fit(
            data, checkpoint=resuming(tmp_path)
        )


def test_another_structure_given_as_code_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", structure=EdgeStrength()), data, tmp_path)
    for structure in (EdgeStrength(tied=True), EdgeStrength(learn_self_loops=False)):
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make("gsebo", structure=structure).fit(data, checkpoint=resuming(tmp_path))
    resumed = make("gsebo", structure=EdgeStrength()).fit(
        data, checkpoint=resuming(tmp_path)
    )
    assert_same_run(resumed, make("gsebo").fit(data))


@every_method
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(
    name: str, share: float, data: Data, tmp_path: Path
) -> None:
    interrupt(make(name), data, tmp_path)
    (path,) = tmp_path.glob("checkpoint*")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidInput, match="damaged") as caught:
        make(name).fit(data, checkpoint=resuming(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["step", "history", "best", "weights:weights"])
def test_an_incomplete_checkpoint_is_refused(
    missing: str, data: Data, tmp_path: Path
) -> None:
    interrupt(make("gsebo"), data, tmp_path)
    path = saving(tmp_path).path
    tensors, facts = read_tensors(path, "a checkpoint")
    tensors.pop(missing, None)
    facts.pop(missing, None)
    write_tensors(path, tensors, facts)
    with pytest.raises(InvalidInput, match="damaged"):
        make("gsebo").fit(data, checkpoint=resuming(tmp_path))


@every_method
def test_a_place_that_cannot_be_written_is_told_at_once(
    name: str, data: Data, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    steps = []
    with pytest.raises(InvalidInput, match="cannot write"):
        make(name).fit(
            data,
            checkpoint=saving(tmp_path / "file" / "below"),
            watcher=lambda *step: steps.append(step),
        )
    assert steps == []


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
