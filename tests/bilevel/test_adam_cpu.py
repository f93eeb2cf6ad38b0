"""The fused Adam of the CPU against the plain operations."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gsebo.bilevel import adam
from gsebo.bilevel.adam_numba import NUMBA_ADAM
from gsebo.bilevel.optimizers import PLAIN_ADAM, AdamRule, Scales, adam_kernels_for


def random(size: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(size, generator=generator, dtype=dtype)
    # Some weights never had a gradient, and some had tiny ones.
    numbers[::5] = 0
    numbers[1::7] *= 1e-12
    return numbers


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    small = 1e-12 if dtype == torch.float64 else 1e-5
    return {"rtol": small, "atol": small * 1e-3}


def assert_close_but_for_cancelling(
    found: torch.Tensor, expected: torch.Tensor, terms: list[torch.Tensor]
) -> None:
    """Rounding is measured by the terms of a sum, which may be far above the sum."""
    allowed = tolerance(expected.dtype)
    size = torch.stack([expected, *terms]).abs().amax(0)
    assert bool(
        ((found - expected).abs() <= allowed["atol"] + allowed["rtol"] * size).all()
    )


@given(
    size=st.integers(0, 70),
    count=st.integers(1, 2000),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    later=st.booleans(),
)
# A sum of two terms that cancel to a few thousandths of either.
@example(size=31, count=1996, seed=338, dtype=torch.float32, later=True)
@settings(deadline=None)
def test_both_ways_are_the_plain_ones(
    size: int, count: int, seed: int, dtype: torch.dtype, later: bool
) -> None:
    weight, gradient, mean, a, b, c = (random(size, seed + k, dtype) for k in range(6))
    square = random(size, seed + 7, dtype).square()
    scales = Scales.at(count, AdamRule(0.01, (0.9, 0.999), 1e-8))
    plain = PLAIN_ADAM.step((weight, gradient, mean, square), scales)
    fused = NUMBA_ADAM.step((weight, gradient, mean, square), scales)
    torch.testing.assert_close(tuple(fused), plain, **tolerance(dtype))
    moments = plain[1:]
    given = (a, gradient, *moments, *((b, c) if later else ()))
    plain, fused = (k.step_back(given, scales) for k in (PLAIN_ADAM, NUMBA_ADAM))
    # Linear in the cotangents: what each of them gives is a term.
    none = torch.zeros_like(a)
    alone = [
        PLAIN_ADAM.step_back((cotangent, gradient, *moments, *of_moments), scales)
        for cotangent, *of_moments in ((a,), (none, b, none), (none, none, c))[
            : 3 if later else 1
        ]
    ]
    for place, (found, expected) in enumerate(zip(fused, plain, strict=True)):
        terms = [each[place] for each in alone]
        assert_close_but_for_cancelling(found, expected, terms)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    optimizer = adam(0.01)
    weights = {"w": torch.ones(3)}
    gradients = {"w": torch.tensor([1.0, bad, 1.0])}
    moved, _ = optimizer.update(gradients, optimizer.init(weights), weights)
    assert torch.isfinite(moved["w"]).tolist() == [True, False, True]


def test_what_records_gradients_is_left_to_autograd() -> None:
    plain = torch.ones(2)
    leaf = torch.ones(2, requires_grad=True)
    assert adam_kernels_for(plain, plain) is NUMBA_ADAM
    assert adam_kernels_for(plain, leaf) is PLAIN_ADAM
    assert adam_kernels_for(torch.ones(2, dtype=torch.float16)) is PLAIN_ADAM
    assert adam_kernels_for(torch.ones(4, 4).T) is PLAIN_ADAM
    assert adam_kernels_for(torch.ones(2, device="meta")) is PLAIN_ADAM
    with torch.no_grad():
        assert adam_kernels_for(leaf) is NUMBA_ADAM


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("later", [False, True])
def test_the_gpu_takes_the_same_steps(dtype: torch.dtype, later: bool) -> None:
    weight, gradient, mean, a, b, c = (random(1000, k, dtype).cuda() for k in range(6))
    tensors = (weight, gradient, mean, random(1000, 7, dtype).square().cuda())
    scales = Scales.at(3, AdamRule(0.01, (0.9, 0.999), 1e-8))
    fused = adam_kernels_for(*tensors)
    assert fused not in (PLAIN_ADAM, NUMBA_ADAM)
    truth = PLAIN_ADAM.step(tensors, scales)
    close = {"rtol": 1e-4, "atol": 1e-7}
    torch.testing.assert_close(tuple(fused.step(tensors, scales)), truth, **close)
    given = (a, gradient, *truth[1:], *((b, c) if later else ()))
    expected = PLAIN_ADAM.step_back(given, scales)
    torch.testing.assert_close(tuple(fused.step_back(given, scales)), expected, **close)
