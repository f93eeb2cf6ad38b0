"""The trust region: what a step may do, and that it means the same everywhere."""

import math
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import gsebo
from gsebo.bilevel import State, Tree
from gsebo.bilevel.optimizers import sgd
from gsebo.training.outer_step import Found, OptimizerStep, TrustRegion

RADIUS = 0.03
STEP = TrustRegion(RADIUS)


def as_it_is(outer: Tree) -> Tree:
    return outer


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def moved(
    gradient: Tensor, loss: float, units: Tensor, step: TrustRegion = STEP
) -> Tensor:
    outer = {"change": torch.zeros_like(gradient)}
    found = Found(
        {"change": gradient},
        torch.tensor(loss, dtype=gradient.dtype),
        {"change": units},
        as_it_is,
    )
    after, _ = step.update(found, step.init(outer), outer)
    return after["change"]


@given(
    seed=st.integers(0, 1000),
    size=st.integers(1, 40),
    loss=st.floats(1e-6, 1e6),
    scale=st.floats(1e-12, 1e12),
    silent=st.floats(0, 0.9),
)
def test_both_limits_hold_and_one_is_reached(
    seed: int, size: int, loss: float, scale: float, silent: float
) -> None:
    gradient, units = drawn(seed, size) * scale, drawn(seed + 1, size).abs() + 0.01
    gradient[1 : 1 + int(silent * size)] = 0
    relative = moved(gradient, loss, units) / units
    moving = relative[gradient != 0]
    length = moving.square().mean().sqrt() / RADIUS
    promise = -(relative * units * gradient).sum() / (RADIUS * loss)
    assert length <= 1 + 1e-4 and promise <= 1 + 1e-4
    assert max(length, promise) >= 1 - 1e-4


@given(seed=st.integers(0, 1000), unit=st.floats(1e-3, 1e3), much=st.floats(1e-6, 1e6))
def test_units_of_strength_and_loss_are_for_nothing(
    seed: int, unit: float, much: float
) -> None:
    gradient, units = drawn(seed, 30), drawn(seed + 1, 30).abs()
    once = moved(gradient, 2.0, units)
    in_other_units = moved(gradient / unit * much, 2.0 * much, units * unit)
    assert torch.allclose(in_other_units / unit, once, rtol=1e-6, atol=1e-12)


def test_what_no_label_speaks_of_does_not_count() -> None:
    gradient, units = drawn(0, 20), drawn(1, 20).abs()
    padded = torch.cat([gradient, torch.zeros(1000)]).double()
    more = torch.cat([units, torch.ones(1000)]).double()
    assert torch.equal(moved(padded, 5.0, more)[:20], moved(gradient, 5.0, units))
    assert not moved(padded, 5.0, more)[20:].any()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_runs_together_move_as_they_do_alone(kind: torch.dtype) -> None:
    gradient, units = drawn(0, 3, 2, 50).to(kind), drawn(1, 50).abs().to(kind)
    gradient[1] *= 1e-4
    losses = torch.tensor([3.0, 0.1, 700.0], dtype=kind)
    alone = [
        moved(one, float(loss), units)
        for one, loss in zip(gradient, losses, strict=True)
    ]
    outer = {"change": torch.zeros_like(gradient)}
    starts = [STEP.init({"change": each}) for each in outer["change"]]
    slots = {
        name: torch.stack([start.slots[name] for start in starts])
        for name in starts[0].slots
    }
    found = Found({"change": gradient}, losses, {"change": units}, as_it_is)
    together, _ = STEP.update(found, State(0, slots), outer)
    assert torch.equal(together["change"], torch.stack(alone))


@given(seed=st.integers(0, 1000), cut=st.integers(0, 60))
def test_shares_of_processes_move_as_the_whole_does(seed: int, cut: int) -> None:
    gradient, units = drawn(seed, 60).float(), drawn(seed + 1, 60).abs().float()
    whole = moved(gradient, 4.0, units)
    pieces = slice(None, cut), slice(cut, None)
    told: list[Tensor | None] = [None, None]
    meeting = Barrier(2)

    def in_process(place: int) -> Tensor:
        def by_holder(numbers: Tensor) -> Tensor:
            told[place] = numbers
            meeting.wait()
            all_of_them = torch.stack([each for each in told if each is not None])
            meeting.wait()
            return all_of_them

        own = gradient[pieces[place]]
        outer = {"change": torch.zeros_like(own)}
        units_here = {"change": units[pieces[place]]}
        found = Found(
            {"change": own}, torch.tensor(4.0), units_here, as_it_is, by_holder
        )
        after, _ = STEP.update(found, STEP.init(outer), outer)
        return after["change"]

    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(in_process, range(2)))
    assert torch.equal(torch.cat(shares), whole)


def walk(losses: list[float]) -> tuple[list[Tensor], State]:
    outer, places = {"change": torch.zeros(4)}, []
    state = STEP.init(outer)
    for number, loss in enumerate(losses):
        gradient = {"change": torch.full((4,), 1.0 + number)}
        found = Found(gradient, torch.tensor(loss), {}, as_it_is)
        outer, state = STEP.update(found, state, outer)
        places.append(outer["change"])
    return places, state


def undone(state: State) -> float:
    """How often the radius was halved."""
    return round(math.log2(RADIUS / float(state.slots["radius"])), 4)


def test_a_loss_above_the_last_ten_takes_the_last_step_back() -> None:
    places, state = walk([10.0 - number for number in range(10)] + [10.5])
    assert torch.equal(places[-1], places[-3])
    assert not torch.equal(places[-2], places[-3])
    assert undone(state) == 1


@pytest.mark.parametrize("last", [9.9, 10.0])
def test_a_loss_that_was_seen_lately_takes_nothing_back(last: float) -> None:
    places, state = walk([10.0 - number for number in range(10)] + [last])
    assert not torch.equal(places[-1], places[-3]) and undone(state) == 0


def test_a_loss_that_is_no_number_is_worse_than_any() -> None:
    _, state = walk([1.0] * 10 + [math.nan])
    assert undone(state) == 1


def test_without_a_gradient_nothing_moves() -> None:
    assert not moved(torch.zeros(5), 1.0, torch.ones(5)).any()


def test_more_inner_steps_may_go_farther() -> None:
    gradient, units = drawn(0, 10), torch.ones(10).double()
    usual = moved(gradient, 1e9, units)
    assert torch.allclose(
        moved(gradient, 1e9, units, TrustRegion(0.03, 25)), 2.5 * usual
    )
    assert torch.equal(moved(gradient, 1e9, units, TrustRegion(0.03, 5)), usual)


def test_the_step_of_the_paper_is_that_of_its_optimiser() -> None:
    gradient, outer = {"change": drawn(0, 5)}, {"change": drawn(1, 5)}
    step = OptimizerStep(sgd(0.1))
    found = Found(gradient, torch.tensor(1.0), {"change": drawn(2, 5)}, as_it_is)
    after, _ = step.update(found, step.init(outer), outer)
    expected, _ = sgd(0.1).update(gradient, State(0, {}), outer)
    assert torch.equal(after["change"], expected["change"])


def test_a_component_without_labels_changes_no_strength() -> None:
    data = gsebo.load_data("cora")
    alone = gsebo.GSEBO(max_outer_steps=2, random_state=0).fit(data)
    double = gsebo.load_data("cora")
    nodes = data.num_nodes
    double.x = torch.cat([data.x, data.x])
    double.edge_index = torch.cat([data.edge_index, data.edge_index + nodes], 1)
    double.y = torch.cat([data.y, data.y])
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = data[name]
        double[name] = torch.cat([mask, torch.zeros_like(mask)])
    beside = gsebo.GSEBO(max_outer_steps=2, random_state=0).fit(double)
    edges = data.num_edges
    start = beside.initial_strength_
    assert torch.equal(beside.strength_[edges:], start[edges:])
    assert not torch.equal(beside.strength_[:edges], start[:edges])
    assert torch.equal(beside.strength_[:edges], alone.strength_)
