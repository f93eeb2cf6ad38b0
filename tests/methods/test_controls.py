"""With a structure that does not move, GSEBO, Frozen and Vanilla are one method."""

import pytest
import torch
from torch_geometric.data import Data

from gsebo import GSEBO, Frozen, Vanilla

from .examples import small_graph, with_fields

STEPS, TAU = 5, 4


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(num_classes=3)


def assert_same(left, right) -> None:
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert torch.equal(left.strength_, left.initial_strength_)
    assert left.best_step_ == right.best_step_
    losses = [[r.val_loss for r in model.history_] for model in (left, right)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("seed", [0, 1, 2**40])
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "mlp"])
def test_three_ways_to_train_a_backbone(data: Data, backbone: str, seed: int) -> None:
    network = {"backbone": backbone, "hidden_channels": 8}
    shared = {**network, "random_state": seed, "patience": 2}
    schedule = {"inner_steps": TAU, "max_outer_steps": STEPS}
    vanilla = Vanilla(**shared, max_epochs=STEPS * TAU, evaluate_every=TAU).fit(data)
    frozen = Frozen(**shared, **schedule).fit(data)
    assert_same(vanilla, frozen)
    assert_same(GSEBO(**shared, **schedule, trust_radius=0).fit(data), frozen)
    assert_same(GSEBO(**shared, **schedule, structure="fixed").fit(data), frozen)


def test_a_sum_is_a_mean_with_less_decay_and_longer_steps(data: Data) -> None:
    shared = {"max_outer_steps": STEPS, "random_state": 0, "dropout": 0.0}
    shared |= {"inner_steps": TAU, "inner_optimizer": "sgd"}
    count = int(data.train_mask.sum())
    total = {"inner_reduction": "sum", "inner_lr": 0.5 / count, "weight_decay": 0.1}
    mean = {"inner_lr": 0.5, "weight_decay": 0.1 / count}
    # In single precision a unit may be switched on by rounding.
    exact = with_fields(data, x=data.x.double())
    frozen = Frozen(**shared, **total).fit(exact)
    torch.testing.assert_close(
        frozen.probability_, Frozen(**shared, **mean).fit(exact).probability_
    )
    assert_same(GSEBO(**shared, **total, trust_radius=0).fit(exact), frozen)


@pytest.mark.parametrize("hypergradient", ["unrolled", "truncated", "first_order"])
def test_no_engine_changes_the_training(data: Data, hypergradient: str) -> None:
    shared = {"inner_steps": TAU, "max_outer_steps": STEPS, "random_state": 0}
    frozen = Frozen(**shared).fit(data)
    model = GSEBO(**shared, trust_radius=0, hypergradient=hypergradient).fit(data)
    # To rounding: what autograd records is not the kernel calls of the others.
    torch.testing.assert_close(model.probability_, frozen.probability_)


@pytest.mark.parametrize("select_by", ["loss", "accuracy"])
def test_the_same_holds_on_a_holdout(data: Data, select_by: str) -> None:
    shared = {
        "inner_steps": TAU,
        "max_outer_steps": STEPS,
        "stop_on": "holdout",
        "select_by": select_by,
        "random_state": 1,
    }
    assert_same(GSEBO(**shared, trust_radius=0).fit(data), Frozen(**shared).fit(data))


def test_a_structure_that_moves_makes_a_difference(data: Data) -> None:
    shared = {"inner_steps": TAU, "max_outer_steps": STEPS, "random_state": 0}
    model = GSEBO(**shared, outer_step="paper", outer_lr=0.1).fit(data)
    assert not torch.equal(model.strength_, model.initial_strength_)
    assert not torch.equal(model.probability_, Frozen(**shared).fit(data).probability_)


def test_a_network_without_edges_has_nothing_to_learn(data: Data) -> None:
    model = GSEBO("mlp", max_outer_steps=2, trust_radius=0.5, random_state=0).fit(data)
    assert torch.equal(model.strength_, model.initial_strength_)


@pytest.mark.parametrize(("epochs", "every"), [(10, 4), (3, 7), (8, 4), (5, 1)])
def test_plain_training_takes_no_more_steps_than_asked(
    data: Data, epochs: int, every: int
) -> None:
    model = Vanilla(max_epochs=epochs, evaluate_every=every, random_state=0).fit(data)
    steps = [record.inner_steps for record in model.history_]
    assert steps == [*range(every, epochs, every), epochs]
