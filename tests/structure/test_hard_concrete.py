import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.methods.baselines.ptdnet import HardConcrete
from gsebo.sparse import Noise, uniform

from .graphs import examples

DRAWS = 200_000
logit = st.floats(-30, 30)
temperature = st.floats(0.05, 5)
stretch = st.tuples(st.floats(-0.5, 0), st.floats(1, 1.5))


def draws(site: int, like: torch.dtype = torch.float64) -> torch.Tensor:
    return uniform((DRAWS,), Noise(0, 0), site, torch.empty(0, dtype=like))


@examples
@given(
    stretch,
    logit,
    temperature,
    st.floats(0, 1),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_gate_lies_between_zero_and_one(
    ends: tuple[float, float], w: float, t: float, u: float, dtype: torch.dtype
) -> None:
    gates = HardConcrete(*ends)
    logits = torch.tensor([w], dtype=dtype, requires_grad=True)
    for gate in (
        gates.sample(logits, torch.tensor([u], dtype=dtype), t),
        gates.at_rest(logits),
        gates.open_probability(logits, t),
    ):
        assert 0 <= float(gate.detach()) <= 1
        if gate.requires_grad:
            (slope,) = torch.autograd.grad(gate.sum(), logits)
            assert bool(slope.isfinite().all())


@pytest.mark.parametrize("w", [-3.0, -0.5, 0.0, 2.0])
@pytest.mark.parametrize("t", [0.05, 2 / 3, 2.0])
def test_the_open_probability_is_the_closed_form_and_how_often_gates_open(
    w: float, t: float
) -> None:
    gates = HardConcrete(-0.1, 1.1)
    logits = torch.full((DRAWS,), w, dtype=torch.float64)
    told = float(gates.open_probability(logits[:1], t))
    # P(L > t logit(threshold) - w) for logistic L, worked out by hand.
    threshold = 0.1 / 1.2
    edge = t * math.log(threshold / (1 - threshold)) - w
    assert told == pytest.approx(1 / (1 + math.exp(edge)), abs=1e-12)
    drawn = gates.sample(logits, draws(1), t)
    spread = math.sqrt(told * (1 - told) / DRAWS)
    assert abs(float((drawn > 0).double().mean()) - told) < 4 * spread + 1e-9
    # The stretch is symmetric: as often as w opens, -w stays below 1.
    below = gates.sample(-logits, draws(2), t) < 1
    assert abs(float(below.double().mean()) - told) < 4 * spread + 1e-9


def test_without_a_stretch_below_zero_no_gate_closes() -> None:
    logits = torch.tensor([-5.0, 0.0, 5.0], requires_grad=True)
    told = HardConcrete(-0.0, 1.01).open_probability(logits, 0.5)
    assert torch.equal(told, torch.ones(3))
    assert not told.requires_grad


def test_a_low_temperature_makes_bernoulli_gates() -> None:
    w = torch.tensor(0.8, dtype=torch.float64)
    gates = HardConcrete().sample(w.expand(DRAWS), draws(3), 1e-4)
    assert float(((gates == 0) | (gates == 1)).double().mean()) > 0.999
    assert float(gates.mean()) == pytest.approx(float(torch.sigmoid(w)), abs=0.005)
