"""Several seeds at once: each is what it would have been alone."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN

from gsebo import GSEBO, Checkpoint, Frozen, InvalidInput, Vanilla, generate_graph
from gsebo.methods import GraphClassifier
from gsebo.sparse.numba_compile import thread_limit
from gsebo.training import StepRecord
from gsebo.training.problem import Stack

pytestmark = [pytest.mark.exact, pytest.mark.compiles]

SEED = 7


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(
        80, num_classes=3, average_degree=4.0, split="random:20/30/50"
    )


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def cores(request: pytest.FixtureRequest) -> Iterator[int]:
    """Number of threads that may be used."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield thread_limit()
    torch.set_num_threads(before)


@pytest.fixture
def stacks(cores: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all stacks that were made."""
    sizes: list[int] = []
    original = Stack.__init__

    def counted(self: Stack, problems: Any) -> None:
        sizes.append(len(problems))
        original(self, problems)

    monkeypatch.setattr(Stack, "__init__", counted)
    return sizes


def make(**changes: Any) -> GSEBO:
    parameters = {
        "hidden_channels": 6,
        "inner_steps": 3,
        "max_outer_steps": 6,
        "outer_step": "paper",
        "outer_lr": 0.3,
        "device": "cpu",
        "random_state": SEED,
    }
    return GSEBO(**parameters | changes)


def assert_same(left: GraphClassifier, right: GraphClassifier) -> None:
    assert left.seed_ == right.seed_
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert left.best_step_ == right.best_step_
    for one, other in zip(left.history_, right.history_, strict=True):
        assert {**asdict(one), "seconds": 0} == {**asdict(other), "seconds": 0}


def assert_as_alone(model: GraphClassifier, data: Data, count: int) -> None:
    together = model.fit(data, replicas=count).replicas_
    assert together[0] is model and len(together) == count
    for place, replica in enumerate(together):
        assert replica.random_state == SEED + place
        alone = type(model)(**replica.get_params(deep=False)).fit(data)
        assert_same(replica, alone)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "mlp"])
def test_every_backbone_stacks(
    data: Data, backbone: str, stacks: list[int], cores: int
) -> None:
    # Kernels of attention over eight channels are compiled for other tests too.
    assert_as_alone(make(backbone=backbone, hidden_channels=8), data, 4)
    assert stacks == ([4] if cores == 1 else [2, 2])


@pytest.mark.parametrize(
    "options",
    [
        {"per_layer": True},
        {"outer_step": "trust", "outer_lr": 0.01, "trust_radius": 0.3, "tied": True},
        {"tied": True, "direct_term": True},
        {"hypergradient": "truncated"},
        {"hypergradient": "first_order", "direct_term": True},
        {"inner_optimizer": "momentum", "outer_optimizer": "adam"},
        {"dropout": 0.0},
        {"inner_reduction": "sum"},
        {"structure": "fixed"},
        {"backbone_options": {"residual": True, "norm": "layer"}},
        {"backbone_options": {"input_projection": True, "norm": "batch"}},
        {"backbone": "gcnii"},
    ],
    ids=lambda options: ",".join(options),
)
def test_every_option_stacks(
    data: Data, options: dict[str, Any], stacks: list[int], cores: int
) -> None:
    assert_as_alone(make(**options), data, 2)
    # The yardstick of the trust region is a training of its own.
    trainings = 2 if options.get("outer_step") == "trust" else 1
    assert stacks == ([2] if cores == 1 else [1, 1]) * trainings


def test_each_stops_on_its_own(data: Data, stacks: list[int], cores: int) -> None:
    model = make(patience=2, max_outer_steps=25, outer_lr=2.0, inner_lr=0.05)
    assert_as_alone(model, data, 6)
    lengths = [len(replica.history_) for replica in model.replicas_]
    assert len(set(lengths)) > 1, lengths
    # Once half have stopped, the others go on without them.
    assert len(stacks) > cores


@pytest.mark.parametrize(
    "model",
    [
        Vanilla(max_epochs=12, evaluate_every=5, device="cpu", random_state=SEED),
        Frozen(inner_steps=3, max_outer_steps=4, device="cpu", random_state=SEED),
    ],
    ids=["vanilla", "frozen"],
)
def test_plain_training_stacks(
    data: Data, model: GraphClassifier, stacks: list[int], cores: int
) -> None:
    assert_as_alone(model, data, 4)
    assert stacks == ([4] if cores == 1 else [2, 2])


@pytest.mark.parametrize(
    "options",
    [
        {"stop_on": "holdout"},
        {"backbone": PyGGCN(16, 8, 2, 3)},
        {"backbone": "jk", "backbone_options": {"mode": "lstm"}},
    ],
    ids=["holdout", "pyg", "lstm"],
)
def test_what_cannot_be_stacked_is_fitted_one_by_one(
    data: Data, options: dict[str, Any], stacks: list[int]
) -> None:
    assert_as_alone(make(**options), data, 2)
    assert stacks == []


@pytest.mark.parametrize("engine", ["unrolled", "implicit"])
def test_engines_that_need_a_graph_go_one_by_one(
    data: Data, engine: str, stacks: list[int]
) -> None:
    assert_as_alone(make(hypergradient=engine, max_outer_steps=2), data, 2)
    assert stacks == []


def test_watchers_hear_of_every_replica(data: Data) -> None:
    heard = []
    make().fit(data, replicas=2, watcher=lambda record, logits: heard.append(record))
    steps = sorted(record.step for record in heard)
    assert steps == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_an_interruption_ends_all_workers(data: Data, cores: int) -> None:
    def interrupt(record: StepRecord, logits: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(max_outer_steps=10**6, patience=10**6).fit(
            data, replicas=4, watcher=interrupt
        )


def test_a_single_fit_is_its_only_replica(data: Data) -> None:
    model = make().fit(data)
    assert model.replicas_ == [model]


@pytest.mark.parametrize("replicas", [0, -1, 1.5, "2"])
def test_a_bad_number_is_refused(data: Data, replicas: Any) -> None:
    with pytest.raises(InvalidInput, match=r"replicas=.* given"):
        make().fit(data, replicas=replicas)


def test_checkpoints_are_for_one(data: Data, tmp_path) -> None:
    with pytest.raises(InvalidInput, match="replicas=2 given with a checkpoint"):
        make().fit(data, replicas=2, checkpoint=Checkpoint(tmp_path))
