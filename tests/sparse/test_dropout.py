import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse import (
    Noise,
    Pattern,
    SparseFeatures,
    dropout,
    numba_cpu,
    reference,
    reference_kernels,
)
from gsebo.sparse.operators import keep_mask
from gsebo.sparse.random_bits import Drop
from gsebo.tape.backend import FeatureStep
from gsebo.tape.cpu_kernels import NUMBA_TAPE

from .patterns import awkward, dropped_features, examples, normal

pytestmark = pytest.mark.compiles

MANY = 2**17
RATES = [0.01, 0.3, 0.5, 0.9]
integers = st.integers(0, 2**64 - 1)
noises = st.builds(Noise, integers, integers)


def mask(
    size: int = MANY, rate: float = 0.5, seed: int = 0, step: int = 0, site: int = 0
) -> Tensor:
    return keep_mask(torch.empty(size), rate, Noise(seed, step), site)


def correlation(one: Tensor, other: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def kept(position: int, keys: tuple[int, int], threshold: int) -> bool:
    """The definition, for one position, in unbounded integers."""

    def mix(h: int) -> int:
        h ^= h >> 16
        h = h * 0x7FEB352D % 2**32
        h ^= h >> 15
        h = h * 0x846CA68B % 2**32
        return h ^ (h >> 16)

    high, low = divmod(position, 2**32)
    first = mix((low + keys[0]) % 2**32)
    return mix(first ^ keys[1] ^ (high * 0x9E3779B9 % 2**32)) < threshold


@examples
@given(
    noise=noises,
    site=st.integers(0, 20),
    rate=st.floats(0, 1, exclude_max=True),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_kernels_draw_the_same_bits(
    noise: Noise, site: int, rate: float, dtype: torch.dtype
) -> None:
    x = torch.empty(3, 41, dtype=dtype)
    ours = keep_mask(x, rate, noise, site)
    with reference_kernels():
        assert torch.equal(ours, keep_mask(x, rate, noise, site))
    threshold = max(round((1 - rate) * 2**32), 1)
    expected = [kept(k, noise.keys(site), threshold) for k in range(x.numel())]
    assert (ours != 0).flatten().tolist() == expected
    assert set(ours.unique().tolist()) <= {0.0, float(ours.max())}


def test_positions_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    start = 2**32 - 20
    keys, half = Noise(3, 4).keys(5), 2**31
    expected = [kept(start + k, keys, half) for k in range(60)]
    assert expected[20:] != [kept(k, keys, half) for k in range(40)]

    part = slice(start, start + 60)
    bits = reference._hash_part(part, keys, torch.device("cpu"))
    assert (bits < half).tolist() == expected

    # The kernel that draws at given positions, as programs do.
    ones = torch.ones(60)
    places = torch.arange(start, start + 60)
    drop = Drop(torch.tensor([3]), torch.tensor([4]), 5, 0.5, places)
    each = Pattern.from_positions(torch.arange(60), torch.zeros(60, dtype=int), 60, 1)
    step = FeatureStep(each, ones, drop, 1, lambda rows: each)
    assert (dropped_features(NUMBA_TAPE, step)[0] != 0).tolist() == expected

    # The loop of the kernel in plain Python, begun at another index.
    positions = np.arange(start, start + 60)
    monkeypatch.setattr(numba_cpu, "prange", lambda _: positions)
    found: dict[int, float] = {}

    class Out:
        shape = (60,)
        __setitem__ = staticmethod(lambda k, value: found.update({int(k): value}))

    with np.errstate(over="ignore"):
        numba_cpu._keep_mask(np.uint32(keys[0]), np.uint32(keys[1]), half, 2.0, Out())
    assert [found[start + k] != 0 for k in range(60)] == expected


def test_any_number_of_threads_draws_the_same(request: pytest.FixtureRequest) -> None:
    drawn = mask()
    request.getfixturevalue("parallel")
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(drawn, mask())


@examples
@given(noise=noises, site=st.integers(0, 9))
def test_a_mask_is_a_pure_function_of_its_names(noise: Noise, site: int) -> None:
    x = torch.empty(256)
    first = keep_mask(x, 0.5, noise, site)
    assert torch.equal(first, keep_mask(torch.ones(256), 0.5, Noise(*noise), site))
    assert torch.equal(first, keep_mask(torch.empty(16, 16), 0.5, noise, site).view(-1))
    others = [
        (Noise(noise.seed ^ 1, noise.step), site),
        (Noise(noise.seed ^ (1 << 40), noise.step), site),
        (Noise(noise.seed, noise.step ^ 1), site),
        (Noise(noise.seed, noise.step ^ (1 << 40)), site),
        (noise, site + 1),
        (Noise(noise.step, noise.seed), site + 1),
    ]
    for other in others:
        assert not torch.equal(first, keep_mask(x, 0.5, *other))


@pytest.mark.parametrize("rate", RATES)
def test_rate_and_mean(rate: float) -> None:
    for seed in range(5):
        drawn = mask(rate=rate, seed=seed, site=3)
        dropped = float((drawn == 0).double().mean())
        spread = math.sqrt(rate * (1 - rate) / MANY)
        assert abs(dropped - rate) < 5 * spread
        assert abs(float(drawn.double().mean()) - 1) < 5 * spread / (1 - rate)
        assert torch.allclose(drawn[drawn != 0], torch.tensor(1 / (1 - rate)))


def test_neighboring_names_are_uncorrelated() -> None:
    bound = 5 / math.sqrt(MANY)
    base = mask()
    for distance in (1, 2, 3, 4, 16):
        assert abs(correlation(base, mask(seed=distance))) < bound
        assert abs(correlation(base, mask(step=distance))) < bound
        assert abs(correlation(base, mask(site=distance))) < bound
        assert abs(correlation(mask(seed=distance), mask(step=distance))) < bound
        assert abs(correlation(mask(step=distance), mask(site=distance))) < bound


def test_neighboring_positions_are_uncorrelated() -> None:
    for seed in range(3):
        drawn = mask(seed=seed)
        for lag in (1, 2, 3, 7, 16, 64, 1433):
            bound = 5 / math.sqrt(MANY - lag)
            assert abs(correlation(drawn[:-lag], drawn[lag:])) < bound


@pytest.mark.parametrize("seed", range(3))
def test_bytes_of_bits_are_uniform(seed: int) -> None:
    bits = (mask(seed=seed) != 0).view(-1, 8).long()
    counts = torch.bincount((bits << torch.arange(8)).sum(1), minlength=256).double()
    expected = MANY / 8 / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)


def test_one_position_over_steps_is_a_fair_coin() -> None:
    steps = 4000
    drawn = torch.stack([mask(6, 0.5, step=step) for step in range(steps)])
    frequency = (drawn != 0).double().mean(0)
    assert ((frequency - 0.5).abs() < 5 * 0.5 / math.sqrt(steps)).all()
    bound = 5 / math.sqrt(steps)
    for k in range(6):
        assert abs(correlation(drawn[:-1, k], drawn[1:, k])) < bound


def test_a_higher_rate_drops_more_of_the_same() -> None:
    kept_at = [mask(rate=rate) != 0 for rate in (0.1, 0.4, 0.8)]
    assert (kept_at[0] >= kept_at[1]).all()
    assert (kept_at[1] >= kept_at[2]).all()


@pytest.mark.usefixtures("kernels")
def test_values_are_zero_or_scaled() -> None:
    x = normal(30, 7).mT
    copy = x.clone()
    out = dropout(x, 0.25, Noise(1, 2), 3)
    drawn = keep_mask(x, 0.25, Noise(1, 2), 3)
    assert torch.equal(x, copy)
    assert torch.equal(out, x * drawn)
    torch.testing.assert_close(out[drawn != 0], x[drawn != 0] / 0.75)


def test_gradient_is_the_mask() -> None:
    x = normal(4, 5).requires_grad_()
    (gradient,) = torch.autograd.grad(dropout(x, 0.5, Noise(0, 1), 0).sum(), x)
    assert torch.equal(gradient, keep_mask(x, 0.5, Noise(0, 1), 0))


def test_sparse_features_draw_for_stored_entries_only() -> None:
    pattern = awkward().pattern
    features = SparseFeatures(pattern, normal(7))
    before = features.values.clone()
    out = dropout(features, 0.5, Noise(7, 8), 1)
    assert out.pattern is pattern
    assert torch.equal(features.values, before)
    assert torch.equal(
        out.values, before * keep_mask(torch.empty(7).double(), 0.5, Noise(7, 8), 1)
    )


def test_no_noise_or_no_rate_returns_the_same_object() -> None:
    x = normal(3, 4)
    features = SparseFeatures(awkward().pattern, normal(7))
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, Noise(0, 0), 0) is x
    assert dropout(features, 0.5, None, 0) is features
    assert dropout(features, 0.0, Noise(0, 0), 0) is features


def test_nothing_to_drop_from() -> None:
    assert dropout(torch.empty(0, 3), 0.5, Noise(0, 0), 0).shape == (0, 3)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, math.nan])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match=r"\[0, 1\)"):
        dropout(torch.ones(3), rate, Noise(0, 0), 0)


def test_almost_certain_dropping_stays_finite() -> None:
    assert dropout(torch.ones(1000), 1 - 1e-15, Noise(0, 0), 0).isfinite().all()
