import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli

from gsebo.methods.baselines.vgcn import BinaryConcrete, divergence_of_sample
from gsebo.sparse import Noise, uniform

from .graphs import examples

logits = st.floats(-12, 12)
temperatures = st.floats(0.05, 3)


def double(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def drawn(size: int, seed: int = 0) -> Tensor:
    return uniform((size,), Noise(seed, 0), 0, double(0))


@examples
@given(logits, temperatures, st.floats(-200, 200))
def test_the_density_is_that_of_a_relaxed_bernoulli(
    logit: float, temperature: float, b: float
) -> None:
    ours = BinaryConcrete(double(logit), temperature).log_density(double(b))
    reference = LogitRelaxedBernoulli(double(temperature), logits=double(logit))
    torch.testing.assert_close(ours, reference.log_prob(double(b)))


@pytest.mark.parametrize(("logit", "temperature"), [(0, 0.1), (-4, 0.5), (4.6, 2)])
def test_the_density_integrates_to_one(logit: float, temperature: float) -> None:
    variable = BinaryConcrete(double(logit), temperature)
    total, _ = quad(
        lambda b: float(variable.log_density(double(b)).exp()),
        (logit - 40) / temperature,
        (logit + 40) / temperature,
        points=[logit / temperature],
        limit=200,
    )
    assert total == pytest.approx(1, abs=1e-8)


@examples
@given(st.floats(-4, 4), temperatures)
def test_samples_follow_the_distribution(logit: float, temperature: float) -> None:
    variable = BinaryConcrete(double(logit), temperature)
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    b = variable.sample(u)
    # P(B <= b) = sigmoid(t b - l) is the number that b was drawn with.
    torch.testing.assert_close(torch.sigmoid(temperature * b - logit), u)
    share = float((torch.sigmoid(b) > 0.5).double().mean())
    assert share == pytest.approx(1 / (1 + math.exp(-logit)), abs=2e-3)


def test_samples_near_zero_temperature_are_coin_flips() -> None:
    a = torch.sigmoid(BinaryConcrete(double(0.3), 1e-6).sample(drawn(1000)))
    assert set(a.tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("q", "p"),
    [((1.5, 0.5), (-1, 0.5)), ((0, 0.1), (0, 0.3)), ((-2, 0.7), (1, 0.2))],
)
def test_the_divergence_is_that_of_numerical_integration(
    q: tuple[float, float], p: tuple[float, float]
) -> None:
    posterior = BinaryConcrete(double(q[0]), q[1])
    prior = BinaryConcrete(double(p[0]), p[1])

    def integrand(b: float) -> float:
        at = double(b)
        log_q, log_p = posterior.log_density(at), prior.log_density(at)
        return float(log_q.exp() * (log_q - log_p))

    middle, width = q[0] / q[1], 40 / q[1]
    exact, _ = quad(
        integrand, middle - width, middle + width, points=[middle], limit=200
    )
    many = BinaryConcrete(posterior.logits.expand(200_000, 1), q[1])
    b = many.sample(drawn(200_000).unsqueeze(-1))
    estimates = divergence_of_sample(many, prior, b)
    error = float(estimates.std()) / math.sqrt(len(estimates))
    assert exact > 0
    assert float(estimates.mean()) == pytest.approx(exact, abs=4 * error)


@examples
@given(st.lists(logits, min_size=1, max_size=6), temperatures)
def test_the_divergence_from_oneself_is_zero(
    numbers: list[float], temperature: float
) -> None:
    same = BinaryConcrete(double(*numbers), temperature)
    b = same.sample(drawn(len(numbers)))
    assert float(divergence_of_sample(same, same, b)) == 0


def test_the_divergence_is_the_sum_of_those_of_the_flips() -> None:
    q, p = double(1, -2, 0.5), double(0, -11, 4)
    b = BinaryConcrete(q, 0.5).sample(drawn(3))
    whole = divergence_of_sample(BinaryConcrete(q, 0.5), BinaryConcrete(p, 0.1), b)
    parts = [
        LogitRelaxedBernoulli(double(0.5), logits=q).log_prob(b),
        -LogitRelaxedBernoulli(double(0.1), logits=p).log_prob(b),
    ]
    torch.testing.assert_close(whole, torch.stack(parts).sum())


def test_gradients_are_those_of_finite_differences() -> None:
    prior = BinaryConcrete(double(0, -3, 4), 0.3)
    u = drawn(3)

    def divergence(q: Tensor) -> Tensor:
        posterior = BinaryConcrete(q, 0.7)
        b = posterior.sample(u)
        return divergence_of_sample(posterior, prior, b)

    start = double(0.5, -2, 3).requires_grad_()
    assert torch.autograd.gradcheck(divergence, (start,))


def test_extreme_logits_stay_finite_in_single_precision() -> None:
    ends = torch.tensor([-11.5, 4.6, 40.0, -40.0])
    posterior = BinaryConcrete(ends.requires_grad_(), 0.1)
    u = torch.tensor([3e-8, 1 - 6e-8, 0.5, 3e-8])
    b = posterior.sample(u)
    prior = BinaryConcrete(ends.detach().flip(0), 0.1)
    divergence = divergence_of_sample(posterior, prior, b)
    (gradient,) = torch.autograd.grad(divergence, ends)
    assert np.isfinite(float(divergence.detach()))
    assert gradient.isfinite().all()
