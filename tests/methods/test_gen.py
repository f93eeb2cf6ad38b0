"""GEN: the estimate of a block model from observations, and the graphs it leads to."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo import GEN, InvalidInput, Vanilla
from gsebo.methods.baselines.gen import (
    EdgeModel,
    Observed,
    PairCounts,
    estimated,
    layer_outputs,
    maximised,
    observed,
)
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of
from gsebo.methods.fitting import PreparedGraph
from gsebo.structure.candidates import nearest_neighbors

from .examples import assert_same_fit, small_graph, with_fields

QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 6,
    "evaluate_every": 3,
    "num_neighbors": 3,
    "max_rounds": 3,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


# --- the estimate --------------------------------------------------------------------


def looks_at(linked: Tensor, rates: tuple[float, float], number: int) -> Tensor:
    """How often each pair of a graph is seen, symmetric ``[nodes, nodes]``."""
    generator = torch.Generator().manual_seed(8)
    chance = torch.where(linked, *rates)
    total = torch.zeros(linked.shape, dtype=torch.int64)
    for _ in range(number):
        total += torch.rand(linked.shape, generator=generator) < chance
    total = total.triu(1)
    return total + total.T


def of_matrix(times: Tensor, number: int) -> Observed:
    first, second = times.triu(1).nonzero().T
    return Observed(first * len(times) + second, times[first, second], number)


def planted(
    num_nodes: int, inside: float, between: float, rates: tuple[float, float], m: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Communities, true links, and how often each pair is seen."""
    generator = torch.Generator().manual_seed(4)
    community = torch.arange(num_nodes) % 3
    same = community.unsqueeze(0) == community.unsqueeze(1)
    linked = torch.rand(same.shape, generator=generator) < torch.where(
        same, inside, between
    )
    linked = linked.triu(1)
    linked = linked | linked.T
    return community, linked, looks_at(linked, rates, m)


def dense_estimate(
    times: Tensor, number: int, community: Tensor, classes: int, steps: int
) -> tuple[float, float, Tensor, Tensor]:
    """The same with matrices of all pairs; returns the rates, w and q."""
    size = len(times)
    upper = torch.ones(size, size, dtype=torch.bool).triu(1)
    e = times[upper].double()
    one = torch.nn.functional.one_hot(community, classes).double()
    q = e / number
    for step in range(steps + 1):
        true = float((q * e).sum() / (number * q.sum()))
        false = float(((1 - q) * e).sum() / (number * (1 - q).sum()))
        matrix = torch.zeros(size, size, dtype=torch.float64)
        matrix[upper] = q
        matrix = matrix + matrix.T
        pairs = one.T @ (1 - torch.eye(size, dtype=torch.float64)) @ one
        density = (one.T @ matrix @ one) / pairs
        w = density[community.unsqueeze(1), community.unsqueeze(0)][upper]
        shown = w * true**e * (1 - true) ** (number - e)
        other = (1 - w) * false**e * (1 - false) ** (number - e)
        if step < steps:
            q = shown / (shown + other)
    return true, false, density, q


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_estimate_is_that_of_all_pairs(steps: int) -> None:
    community, _, times = planted(40, 0.4, 0.1, (0.6, 0.05), 3)
    counts = PairCounts(of_matrix(times, 3), community, 3)
    model = maximised(counts, (counts.times / 3).expand_as(counts.number))
    for _ in range(steps):
        model = maximised(counts, model.linked(counts))
    true, false, density, _ = dense_estimate(times, 3, community, 3, steps)
    assert float(model.true_rate) == pytest.approx(true, rel=1e-9)
    assert float(model.false_rate) == pytest.approx(false, rel=1e-9)
    found = model.density.view(3, 3)
    torch.testing.assert_close(found, density.triu())


@given(
    classes=st.integers(1, 4),
    observations=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_no_step_lowers_the_likelihood(
    classes: int, observations: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    community = torch.randint(classes, (14,), generator=generator)
    times = torch.randint(observations + 1, (14, 14), generator=generator).triu(1)
    counts = PairCounts(of_matrix(times + times.T, observations), community, classes)
    start = torch.rand(counts.number.shape, generator=generator, dtype=torch.float64)
    model = maximised(counts, start)
    before = model.log_likelihood(counts)
    for _ in range(30):
        model = maximised(counts, model.linked(counts))
        after = model.log_likelihood(counts)
        assert after >= before - 1e-9 * abs(before)
        before = after


def test_the_likelihood_is_that_of_every_pair() -> None:
    community, _, times = planted(15, 0.4, 0.1, (0.6, 0.1), 4)
    counts = PairCounts(of_matrix(times, 4), community, 3)
    half = torch.tensor([0.3, 0.1, 0.2, 0, 0.4, 0.15, 0, 0, 0.25]).double()
    model = EdgeModel(torch.tensor(0.7).double(), torch.tensor(0.05).double(), half)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(15):
        for j in range(i + 1, 15):
            low, high = sorted((int(community[i]), int(community[j])))
            w, e = half[3 * low + high], int(times[i, j])
            chance = w * 0.7**e * 0.3 ** (4 - e)
            chance = chance + (1 - w) * 0.05**e * 0.95 ** (4 - e)
            total += chance.log()
    assert model.log_likelihood(counts) == pytest.approx(float(total))


def test_planted_parameters_are_recovered() -> None:
    community, linked, times = planted(300, 0.25, 0.02, (0.7, 0.02), 4)
    counts = PairCounts(of_matrix(times, 4), community, 3)
    model = estimated(counts, 1e-9)
    assert float(model.true_rate) == pytest.approx(0.7, abs=0.02)
    assert float(model.false_rate) == pytest.approx(0.02, abs=0.003)
    density = model.density.view(3, 3)
    torch.testing.assert_close(
        density.diagonal(), torch.full((3,), 0.25).double(), rtol=0, atol=0.03
    )
    between = density[torch.triu(torch.ones(3, 3), 1) > 0]
    assert float((between - 0.02).abs().max()) < 0.01
    # What it holds for links are links.
    seen = of_matrix(times, 4)
    likely = model.linked(counts)[counts.block, seen.times] > 0.5
    first, second = nodes_of(seen.pairs, 300)
    truth = linked[first, second]
    assert float((likely == truth).double().mean()) > 0.9
    # A pair that is seen in one of four looks is a link inside a community first.
    inside, outside = model.linked(counts)[0], model.linked(counts)[1]
    assert bool((inside >= outside).all())


def test_every_pair_is_counted_once(data: Data) -> None:
    size = data.num_nodes
    seen = observed([data.edge_index, data.edge_index[:, :30]], size)
    counts = PairCounts(seen, data.y % 3, 3)
    assert float(counts.number.sum()) == size * (size - 1) / 2
    assert float(counts.number[:, 1:].sum()) == seen.pairs.numel()
    both = set(linked_pairs(data.edge_index[:, :30], size).tolist())
    twice = set(seen.pairs[seen.times == 2].tolist())
    assert twice == both
    assert set(seen.pairs.tolist()) == set(linked_pairs(data.edge_index, size).tolist())


def test_communities_without_pairs_are_no_problem() -> None:
    # One node in community 1, none in 2, and two that everything shows.
    seen = observed([torch.tensor([[0, 1], [1, 2]])] * 2, 4)
    counts = PairCounts(seen, torch.tensor([0, 0, 1, 0]), 3)
    model = estimated(counts, 0.0)
    for numbers in (*model, model.linked(counts)):
        assert bool(numbers.isfinite().all())
        assert 0 <= float(numbers.min()) <= float(numbers.max()) <= 1
    assert bool((model.linked(counts)[counts.block, seen.times] > 0.99).all())


# --- the method ----------------------------------------------------------------------


def test_the_observations_are_what_each_layer_gives(data: Data) -> None:
    model = GEN(**QUICK).fit(data)
    prepared = PreparedGraph(data, torch.device("cpu"))
    features, hidden, scores = layer_outputs(model.model_, prepared.features)
    assert features is prepared.features
    torch.testing.assert_close(scores.exp(), model.probability_)
    pattern, strengths = model.model_.members[0].propagation
    matrix = torch.zeros(data.num_nodes, data.num_nodes)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = strengths
    layer = model.model_.backbone.layers[0]
    expected = torch.relu(matrix @ data.x @ layer.weight + layer.bias)
    torch.testing.assert_close(hidden, expected)


def edges_after(data: Data, **changes: Any) -> set[int]:
    """The pairs that follow from the first training."""
    method = GEN(**QUICK | changes)
    prepared = PreparedGraph(data, torch.device("cpu"))
    outcome = GEN(**QUICK | {"max_rounds": 1}).fit(data)
    by_features = nearest_neighbors(prepared.features, method.num_neighbors)
    found = method._estimated_edges(prepared, by_features, _Trained(outcome))
    return set(linked_pairs(found, data.num_nodes).tolist())


class _Trained:
    """What the estimate reads of an outcome."""

    def __init__(self, fitted: GEN) -> None:
        self.model, self.probability = fitted.model_, fitted.probability_


def test_a_higher_threshold_keeps_fewer_pairs(data: Data) -> None:
    graphs = [
        edges_after(data, threshold=level, keep_given=False)
        for level in (0.0, 0.3, 0.9, 0.9999)
    ]
    sizes = [len(graph) for graph in graphs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    for more, fewer in pairwise(graphs):
        assert fewer <= more


def test_given_edges_stay_where_they_are_to(data: Data) -> None:
    given = set(linked_pairs(data.edge_index, data.num_nodes).tolist())
    high = {"threshold": 0.9999, "observe_given": False}
    kept = edges_after(data, **high, keep_given=True)
    free = edges_after(data, **high, keep_given=False)
    assert given <= kept
    assert kept == free | given
    assert not given <= free
    community = GEN(**QUICK | {"max_rounds": 1}).fit(data).transduction_.clone()
    community[data.train_mask] = data.y[data.train_mask]
    source, target = data.edge_index
    alike = float((community[source] == community[target]).double().mean()) > 0.5
    assert edges_after(data, **high) == (kept if alike else free)


def test_one_round_is_vanilla(data: Data) -> None:
    common = {
        k: v for k, v in QUICK.items() if k not in ("num_neighbors", "max_rounds")
    }
    plain = Vanilla(**common, select_by="first_accuracy").fit(data)
    assert_same_fit(GEN(**QUICK | {"max_rounds": 1}).fit(data), plain)


def test_the_kept_graph_is_what_predicts_and_no_worse(data: Data) -> None:
    model = GEN(**QUICK | {"max_rounds": 5, "max_epochs": 30}).fit(data)
    first = GEN(**QUICK | {"max_rounds": 1, "max_epochs": 30}).fit(data)
    assert model.score(data, "val") >= first.score(data, "val")
    torch.testing.assert_close(model.predict_proba(data), model.probability_)


def test_likely_pairs_are_of_one_class() -> None:
    data = small_graph(120, homophily=0.9, average_degree=6.0, feature_signal=3.0)
    found = edges_after(data, max_epochs=60, num_neighbors=5, keep_given=False)
    first, second = nodes_of(torch.tensor(sorted(found)), 120)
    assert float((data.y[first] == data.y[second]).double().mean()) > 0.85


def test_each_replica_has_its_own_graph(data: Data) -> None:
    together = GEN(**QUICK).fit(data, replicas=2)
    alone = GEN(**QUICK | {"random_state": 1}).fit(data)
    assert_same_fit(together.replicas_[1], alone)


def test_a_graph_without_any_edge_left(data: Data) -> None:
    pair = with_fields(data, edge_index=torch.tensor([[0, 1], [1, 0]]))
    options = {"threshold": 0.9999999, "keep_given": False, "observe_given": False}
    model = GEN(**QUICK, **options).fit(pair)
    assert bool(model.probability_.isfinite().all())


def test_too_many_neighbors_are_refused(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsebo.memory.free_memory", lambda device: 50_000)
    method = GEN(**QUICK | {"num_neighbors": 50})
    prepared = PreparedGraph(data, torch.device("cpu"))
    with pytest.raises(InvalidInput, match="finding 50 neighbors of 60 nodes takes"):
        method._train(prepared.data, [_Runs()])


class _Runs:
    device = torch.device("cpu")
