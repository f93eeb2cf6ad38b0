"""Robust GCN: Gaussians that are propagated, drawn and held near the normal."""

import math

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy, elu

from gsebo import RGCN, InvalidInput
from gsebo.methods.defences.rgcn import Gaussian, RGCNNet
from gsebo.methods.fitting import PreparedGraph
from gsebo.sparse import Noise
from nn.examples import example, run, spread

from ..examples import small_graph

STEPS, SEED = 12, 4


def network(**options: float) -> RGCNNet:
    torch.manual_seed(0)
    return spread(RGCNNet(20, 6, 3, **options))


def test_it_equals_the_dense_formulas() -> None:
    given, model = example("undirected"), network(distrust=0.7)
    adjacency = torch.eye(given.num_nodes, dtype=torch.float64)
    adjacency[given.edge_index[1], given.edge_index[0]] = 1
    inverse = adjacency.sum(1).reciprocal()
    half = inverse.sqrt()
    means = half[:, None] * adjacency * half
    variances = inverse[:, None] * adjacency * inverse
    mean = variance = given.x
    for layer in model.layers:
        mean = elu(mean @ layer.mean_weight)
        variance = (variance @ layer.variance_weight).relu()
        attention = torch.exp(-0.7 * variance)
        mean = means @ (mean * attention)
        variance = variances @ (variance * attention * attention)
    torch.testing.assert_close(run(model, given, given.x), mean)
    model.dropout = 0.0
    for layer in model.layers:
        layer.dropout = 0.0
    drawn = [run(model, given, given.x, noise=Noise(0, step)) for step in range(4000)]
    spread_of = torch.stack(drawn)
    torch.testing.assert_close(spread_of.mean(0), mean, rtol=0, atol=0.06)
    torch.testing.assert_close(spread_of.var(0), variance + 1e-8, rtol=0.15, atol=0.01)


def test_a_certain_node_counts_fully_and_an_uncertain_one_hardly() -> None:
    given = example("undirected")
    pattern = given.pattern(True)
    strength = torch.ones(pattern.num_entries, dtype=torch.float64)
    mean = torch.ones(given.num_nodes, 1, dtype=torch.float64)
    variance = torch.zeros_like(mean)
    certain = Gaussian(mean, variance).propagated(pattern, strength, 1.0)
    assert torch.equal(certain.mean[:, 0], pattern.row_counts.double())
    variance[0] = 50.0
    doubted = Gaussian(mean, variance).propagated(pattern, strength, 1.0)
    reads = torch.zeros(given.num_nodes, dtype=torch.float64)
    reads[pattern.row_of_entry[pattern.column_of_entry == 0]] = 1
    torch.testing.assert_close(doubted.mean[:, 0], certain.mean[:, 0] - reads)


def test_the_divergence_is_that_of_a_standard_normal() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    variance = torch.rand(5, 3, generator=generator, dtype=torch.float64) + 0.1
    normal = torch.distributions.Normal(torch.zeros(()), torch.ones(()))
    known = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, variance.sqrt()), normal
    )
    found = Gaussian(mean, variance).divergence() - 5 / 2
    torch.testing.assert_close(found, known.mean(1).sum(), rtol=1e-6, atol=1e-6)
    zero = torch.zeros(1, 1)
    assert float(Gaussian(zero, zero).divergence()) == pytest.approx(
        -math.log(1e-8) / 2
    )


@pytest.mark.parametrize("divergence", [0.0, 0.02])
def test_training_equals_a_loop_in_torch(divergence: float) -> None:
    data = small_graph()
    data.x = data.x.double()
    fitted = RGCN(
        hidden_channels=8,
        weight_decay=0.01,
        divergence=divergence,
        max_epochs=STEPS,
        select_by="last",
        random_state=SEED,
        device="cpu",
    ).fit(data)
    prepared = PreparedGraph(data, torch.device("cpu"))
    pattern = prepared.topology(self_loops=True).pattern
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = RGCNNet(8, 8, 2).double()
    first = model.layers[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        noise = Noise(SEED, step)
        logits = model(prepared.features, pattern, noise=noise)
        loss = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        hidden = first(prepared.features, prepared.features, noise, 0)
        loss = loss + divergence * hidden.divergence()
        for weight in first.parameters():
            loss = loss + 0.01 / 2 * weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        expected = model(prepared.features, pattern).softmax(-1)
    torch.testing.assert_close(fitted.probability_, expected, rtol=1e-9, atol=1e-12)


def test_a_fitted_model_predicts_other_graphs_by_itself() -> None:
    data, other = small_graph(), small_graph(40, seed=3)
    model = RGCN(max_epochs=5, random_state=0, device="cpu").fit(data)
    assert not model.model_.learned
    assert bool(model.predict_proba(other).isfinite().all())
    weights = dict(model.model_.backbone.named_parameters())
    again = functional_call(
        model.model_.backbone,
        weights,
        (data.x, PreparedGraph(data, "cpu").topology(self_loops=True).pattern),
    )
    torch.testing.assert_close(again.softmax(-1), model.probability_)


def test_distrust_is_not_negative() -> None:
    with pytest.raises(InvalidInput, match="distrust=-1 given; expected 0 <= distrust"):
        RGCN(backbone_options={"distrust": -1}).fit(small_graph())
