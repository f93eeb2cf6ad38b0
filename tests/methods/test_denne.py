"""DenNE: a likelihood that no round lowers, and noise that is found."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor

import gsebo
from gsebo import DenNE, Graph, InvalidInput
from gsebo.methods.baselines.denne import (
    Likelihood,
    NoisyGenerator,
    Penalties,
    absent_pairs,
    anchored,
)
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of
from gsebo.sparse import Noise

from .examples import assert_same_fit, small_graph, with_fields

NODES, COMMUNITIES = 12, 3
QUICK: dict[str, Any] = {"max_epochs": 8, "rounds": 5, "random_state": 0}


def penalties(noise: float = 0.5) -> Penalties:
    return Penalties(noise=noise, community=0.7, degree=1.5)


def drawn(seed: int, *, share: float = 0.4) -> tuple[Tensor, Tensor, float]:
    """Linked pairs and others of a random graph."""
    generator = torch.Generator().manual_seed(seed)
    adjacent = torch.rand(NODES, NODES, generator=generator).triu(1) > 1 - share
    adjacent[0, 1] = True
    linked = linked_pairs(adjacent.nonzero().T, NODES)
    absent, rate = absent_pairs(linked, NODES, 1, Noise(seed, 0))
    return linked, absent, rate


def mixture(seed: int, level: float = 0.01) -> NoisyGenerator:
    generator = torch.Generator().manual_seed(100 + seed)
    shape = NODES, COMMUNITIES
    membership = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.01
    return NoisyGenerator(membership, torch.tensor(level, dtype=torch.float64))


def written_out(
    linked: Tensor, absent: Tensor, rate: float, model: NoisyGenerator, costs: Penalties
) -> Tensor:
    """L as the docstring has it, pair by pair, with N that is the best."""
    z, level = model
    num_entries = 2 * linked.numel()
    unit = (COMMUNITIES / num_entries) ** 0.5
    few, mean = 0.3 * unit, num_entries / NODES * unit
    value = z.new_zeros(())
    for pair in linked.tolist():
        own = (z[pair // NODES] * z[pair % NODES]).sum()
        noise = level * np.exp(-costs.noise) / (own + level * np.exp(-costs.noise))
        noise = noise.detach().clamp(1e-12, 1 - 1e-12)
        entropy = -(noise * noise.log() + (1 - noise) * (1 - noise).log())
        explained = (1 - noise) * own.log() + noise * level.log()
        value = value + explained - costs.noise * noise + entropy
    for pair in [*linked.tolist(), *absent.tolist()]:
        odds = (z[pair // NODES] * z[pair % NODES]).sum() + level
        value = value - (rate + odds).log()
    total = z.sum(1)
    spread = (1 + z / few).log().sum() - (1 + total / few).log().sum()
    inclined = (1 + total / mean).log().sum()
    return value - costs.community * spread - costs.degree * inclined


@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_and_its_derivative(seed: int) -> None:
    linked, absent, rate = drawn(seed)
    likelihood = Likelihood(linked, absent, rate, NODES, COMMUNITIES, penalties())
    z, level = mixture(seed)
    z = z.requires_grad_()
    level = level.requires_grad_()
    expected = written_out(linked, absent, rate, NoisyGenerator(z, level), penalties())
    bound = likelihood.bound(NoisyGenerator(z.detach(), level.detach()))
    assert bound.value == pytest.approx(float(expected.detach()))
    slopes = torch.autograd.grad(expected, [z, level])
    torch.testing.assert_close(bound.up - bound.down, slopes[0])
    # The bound's best level is beyond the present one, the way its slope points.
    assert bool(bound.level > level) == bool(slopes[1] > 0)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.02, 0.9),
    noise=st.floats(0, 5),
    level=st.floats(1e-6, 1),
)
def test_no_round_lowers_it(
    seed: int, share: float, noise: float, level: float
) -> None:
    linked, absent, rate = drawn(seed, share=share)
    costs = penalties(noise)
    likelihood = Likelihood(linked, absent, rate, NODES, COMMUNITIES, costs)
    model, values = mixture(seed, level), list[float]()
    for _ in range(15):
        bound = likelihood.bound(model)
        values.append(bound.value)
        model = bound.highest(model)
    assert all(b >= a - 1e-9 * abs(a) for a, b in pairwise(values))
    assert bool((model.membership >= 0).all())
    assert bool(bound.noise.ge(0).all())
    assert bool(bound.noise.le(1).all())


@pytest.mark.parametrize("per_link", [1, 3, 1000])
def test_absent_pairs_are_absent_and_drawn_once(per_link: int) -> None:
    graph = small_graph(60)
    linked = linked_pairs(graph.edge_index, 60)
    absent, rate = absent_pairs(linked, 60, per_link, Noise(0, 0))
    assert not torch.isin(absent, linked).any()
    assert len(absent.unique()) == len(absent)
    first, second = nodes_of(absent, 60)
    assert bool((first < second).all())
    there_are = 60 * 59 // 2 - len(linked)
    if rate == 1:
        assert len(absent) == there_are
    spread = (there_are * rate * (1 - rate)) ** 0.5
    assert abs(len(absent) - there_are * rate) <= 5 * spread


def test_groups_of_nodes_are_found_in_turned_columns() -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(30) % 3
    basis = torch.nn.functional.one_hot(group).double() / 10**0.5
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator).double()).Q
    found = anchored(basis @ turn)
    torch.testing.assert_close(found.sum(1), torch.ones(30).double())
    assert all(len(found[group == g].argmax(1).unique()) == 1 for g in range(3))
    assert len(found.argmax(1).unique()) == 3


# --- planted communities ------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> tuple[Graph, np.ndarray]:
    """Communities, of whose edges 30 % were added behind."""
    clean = gsebo.generate_graph(
        500, num_classes=4, homophily=0.95, split="random:10/20/70", seed=7
    )
    count = round(clean.num_edges / 2 * 0.3 / 0.7)
    noisy = gsebo.apply_noise(clean, f"inter_class:{count}", 7)
    return noisy, np.arange(noisy.num_edges) >= clean.num_edges


@pytest.fixture(scope="module")
def found(planted: tuple[Graph, np.ndarray]) -> DenNE:
    return DenNE(classifier="logistic", random_state=0).fit(planted[0])


def test_planted_noise_is_found(
    planted: tuple[Graph, np.ndarray], found: DenNE
) -> None:
    graph, false = planted
    assert false.mean() == pytest.approx(0.3, abs=0.01)
    assert roc_auc_score(false, found.noise_) >= 0.85
    removed = found.noise_.numpy() > found.threshold
    # Wrong in the given graph are the false ones; then false ones left and true gone.
    assert (removed != false).sum() < 0.6 * false.sum()
    kept = graph.edge_index[:, ~torch.from_numpy(removed)]
    assert torch.equal(found.denoised_edge_index_, kept)


def test_representations_are_better_than_without_noise(
    planted: tuple[Graph, np.ndarray], found: DenNE
) -> None:
    graph, _ = planted
    control = DenNE(classifier="logistic", denoise=False, random_state=0).fit(graph)
    assert not control.noise_.any()
    assert torch.equal(control.denoised_edge_index_, graph.edge_index)
    assert found.score(graph) > control.score(graph) > 0.5
    sums = found.representation_.sum(1)
    degree = torch.bincount(graph.edge_index[0], minlength=500)
    torch.testing.assert_close(sums, (degree > 0).to(sums))


def test_the_gcn_is_trained_on_the_rest(planted: tuple[Graph, np.ndarray]) -> None:
    graph, _ = planted
    model = DenNE(**QUICK).fit(graph)
    kept = model.denoised_edge_index_
    assert 0 < kept.shape[1] < graph.num_edges
    rest = with_fields(graph, edge_index=kept)
    plain = gsebo.Vanilla(max_epochs=8, random_state=0).fit(rest)
    assert torch.equal(model.predict_proba(graph), plain.predict_proba(rest))


def test_both_directions_are_one_pair(found: DenNE) -> None:
    edges = found.model_.held[0].user_edge_index()
    pairs = linked_pairs(edges, 500)
    noise: dict[int, float] = {}
    for source, target, value in zip(*edges.tolist(), found.noise_, strict=True):
        pair = min(source, target) * 500 + max(source, target)
        assert noise.setdefault(pair, float(value)) == float(value)
    assert len(noise) == len(pairs)


@pytest.mark.parametrize("classifier", ["gcn", "logistic"])
def test_what_is_loaded_is_estimated_again(classifier: str, tmp_path) -> None:
    graph = small_graph(60)
    model = DenNE(classifier=classifier, **QUICK).fit(graph)
    model.save(tmp_path / "model")
    again = gsebo.load_model(tmp_path / "model")
    assert torch.equal(again.noise_, model.noise_)
    assert torch.equal(again.representation_, model.representation_)
    assert_same_fit(model, DenNE(classifier=classifier, **QUICK).fit(graph))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 3}, "num_layers=3 .* expected 2 layers"),
        ({"num_communities": 20, "hidden_channels": 8}, "20 communities and hidden_"),
    ],
)
def test_logistic_regression_has_one_shape(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        DenNE(classifier="logistic", **QUICK, **options).fit(small_graph(60))
