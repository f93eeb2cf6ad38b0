"""Steps that are remembered come back exactly as they were."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsebo.bilevel import OPTIMIZERS, begin, make_optimizer
from gsebo.bilevel.derivatives import advance
from gsebo.bilevel.reverse import Trajectory


@given(
    name=st.sampled_from(sorted(OPTIMIZERS)),
    steps=st.integers(1, 30),
    horizon=st.one_of(st.none(), st.integers(1, 40)),
)
@settings(deadline=None, max_examples=60)
def test_backwards_is_forwards_in_reverse(
    name: str, steps: int, horizon: int | None
) -> None:
    generator = torch.Generator().manual_seed(steps)
    optimizer = make_optimizer(name, 0.1)
    iterate = begin(optimizer, {"w": torch.randn(4, generator=generator)}, step=5)
    past = Trajectory(optimizer, steps, min(horizon or steps, steps))
    seen = []
    for _ in range(steps):
        gradients = {"w": torch.randn(4, generator=generator)}
        past.append(iterate, gradients)
        after = advance(optimizer, iterate, gradients)
        seen.append((gradients, iterate, after))
        iterate = after
    expected = seen[-min(horizon or steps, steps) :][::-1]
    found = list(past.backwards(iterate.state))
    assert len(found) == len(expected)
    pairs = zip(found, expected, strict=True)
    for (transition, number), (gradients, before, after) in pairs:
        assert number == before.step
        assert transition.gradients is gradients
        assert torch.equal(transition.weights["w"], before.weights["w"])
        assert transition.state.count == before.state.count
        assert transition.new_state.count == after.state.count
        for slot, numbers in before.state.slots.items():
            assert torch.equal(transition.state.slots[slot], numbers)
            new = transition.new_state.slots[slot]
            assert torch.equal(new, after.state.slots[slot])
    assert list(past.backwards(iterate.state)) == []


@pytest.mark.parametrize(("steps", "iterates"), [(1, 1), (10, 4), (100, 10)])
def test_few_iterates_are_stored(steps: int, iterates: int) -> None:
    optimizer = make_optimizer("adam", 0.1)
    past = Trajectory(optimizer, steps, steps)
    iterate = begin(optimizer, {"w": torch.zeros(2)})
    for _ in range(steps):
        past.append(iterate, {"w": torch.ones(2)})
    assert len(past._anchors) == iterates
