"""The smoothness of features against its sum over pairs."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.methods.baselines.pairs import gram_matrix
from gsebo.methods.baselines.prognn import feature_smoothness

from .graphs import examples


@examples
@given(seed=st.integers(0, 2**20), alone=st.booleans(), shift=st.floats(1e-6, 1))
def test_it_is_the_sum_over_pairs(seed: int, alone: bool, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(7, 7, dtype=torch.float64, generator=generator)
    weights = weights + weights.T
    if alone:
        weights[3] = weights[:, 3] = 0
    features = torch.randn(7, 4, dtype=torch.float64, generator=generator)
    scaled = features / (weights.sum(1) + shift).sqrt().unsqueeze(1)
    distances = torch.cdist(scaled, scaled, compute_mode="donot_use_mm_for_euclid_dist")
    found = feature_smoothness(weights, gram_matrix(features), shift=shift)
    torch.testing.assert_close(found, (weights * distances.square()).sum() / 2)


def test_equal_features_on_a_regular_graph_are_smooth() -> None:
    ring = torch.eye(5, dtype=torch.float64).roll(1, 0)
    gram = gram_matrix(torch.ones(5, 3, dtype=torch.float64))
    assert abs(float(feature_smoothness(ring + ring.T, gram))) < 1e-12


def test_its_gradient_is_right_and_finite_at_lonely_nodes() -> None:
    generator = torch.Generator().manual_seed(0)
    gram = gram_matrix(torch.randn(4, 3, dtype=torch.float64, generator=generator))
    weights = torch.rand(4, 4, dtype=torch.float64, generator=generator)
    weights = (weights + weights.T).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: feature_smoothness(w, gram), weights)
    empty = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(feature_smoothness(empty, gram), empty)
    assert bool(found.isfinite().all())
