"""STABLE: what the encoder minimises, and how its representations refine a graph."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, prelu
from torch_geometric.data import Data

from gsebo import STABLE, InvalidInput
from gsebo.bilevel import make_optimizer
from gsebo.graph import Propagation, Topology
from gsebo.methods.baselines.shared import minimise
from gsebo.methods.baselines.stable import (
    StableNet,
    StableProblem,
    contrastive_loss,
    degree_propagation,
    most_similar,
)
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.nn.base import symmetric_normalisation
from gsebo.sparse import Noise

from .examples import small_graph, with_fields

QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 6,
    "evaluate_every": 3,
    "pretrain_epochs": 4,
    "backbone_options": {"embedding_channels": 6},
    "random_state": 0,
}


def words_graph(num_nodes: int = 40) -> Data:
    """A graph whose features are zeros and ones, some of them shared by the class."""
    data = small_graph(num_nodes)
    generator = torch.Generator().manual_seed(5)
    likely = torch.where(data.y.unsqueeze(1) == torch.arange(2).repeat(10), 0.4, 0.1)
    x = torch.rand(num_nodes, 20, generator=generator) < likely
    return with_fields(data, x=x.double())


def problem_of(data: Data, **changes: Any) -> StableProblem:
    method = STABLE(**QUICK | {"dropout": 0.0} | changes)
    prepared = PreparedGraph(data, torch.device("cpu"))
    task = make_task(prepared, method.network(), weight_decay=5e-4, seed=3)
    return StableProblem(task, method)


def dense(graph: Propagation) -> Tensor:
    pattern, strengths = graph
    matrix = strengths.new_zeros(pattern.num_rows, pattern.num_rows)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = strengths
    return matrix


def jaccard(x: Tensor) -> Tensor:
    shared = x @ x.T
    size = x.sum(1)
    return shared / (size.unsqueeze(0) + size.unsqueeze(1) - shared).clamp(min=1)


def adjacency(data: Data) -> Tensor:
    matrix = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    matrix[data.edge_index[0], data.edge_index[1]] = 1
    return torch.maximum(matrix, matrix.T).fill_diagonal_(0)


def propagated(matrix: Tensor, loop: float) -> Tensor:
    weighted = matrix + loop * torch.eye(len(matrix), dtype=matrix.dtype)
    scale = weighted.sum(1).rsqrt()
    return scale.unsqueeze(1) * weighted * scale


# --- the encoder ---------------------------------------------------------------------


def test_the_loss_and_its_gradient_are_those_of_dense_matrices() -> None:
    data = words_graph()
    problem = problem_of(data, pretrain_epochs=0)
    count, width = data.num_nodes, 6
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        found = torch.randn(shape, generator=generator, dtype=torch.float64)
        return found.requires_grad_()

    weights = {
        "encoder.weight": drawn(20, width),
        "encoder.bias": drawn(width),
        "slope": drawn(1),
        "scorer.bilinear": drawn(width, width),
        "scorer.bias": drawn(),
    }
    given, noise = adjacency(data), Noise(3, 7)
    pairs = given.triu(1).nonzero().T
    graphs = [problem._encoding(pairs[:, from_:]) for from_ in (20, 3, 0)]
    seen, views = graphs[0], graphs[1:]
    sparse = contrastive_loss(problem.contrast(weights, seen, views, noise))

    left, *others = (dense(graph) for graph in graphs)
    torch.testing.assert_close(others[-1], propagated(given, 2.0))

    def encoded(matrix: Tensor, x: Tensor) -> Tensor:
        heard = matrix @ x @ weights["encoder.weight"] + weights["encoder.bias"]
        return prelu(heard, weights["slope"])

    scores: list[Tensor | float] = [0.0, 0.0]
    nodes = torch.arange(count).double().unsqueeze(1)
    # The order is told by nodes whose only feature is their number.
    told = problem_of(with_fields(data, x=nodes + 1), pretrain_epochs=0)
    order = _order_of(told, noise)
    for view in others:
        summary = encoded(view, data.x).mean(0).sigmoid()
        for place, x in enumerate((data.x, data.x[order])):
            product = torch.einsum(
                "nd,de,e->n", encoded(left, x), weights["scorer.bilinear"], summary
            )
            scores[place] = scores[place] + product + weights["scorer.bias"]
    logits = torch.cat([each for each in scores if isinstance(each, Tensor)])
    target = torch.cat([torch.ones(count), torch.zeros(count)]).double()
    oracle = binary_cross_entropy_with_logits(logits, target)
    torch.testing.assert_close(sparse, oracle)
    leaves = list(weights.values())
    pair = (torch.autograd.grad(loss, leaves) for loss in (sparse, oracle))
    for one, other in zip(*pair, strict=True):
        torch.testing.assert_close(one, other)


def _order_of(problem: StableProblem, noise: Noise) -> Tensor:
    """The order of a step, seen through an encoder that only copies numbers."""
    size = problem.task.num_nodes
    alone = problem._encoding(torch.empty(2, 0, dtype=torch.int64))
    weights = {
        "encoder.weight": torch.eye(1, 6, dtype=torch.float64),
        "encoder.bias": torch.zeros(6, dtype=torch.float64),
        "slope": torch.ones(1, dtype=torch.float64),
        "scorer.bilinear": torch.eye(6, dtype=torch.float64),
        "scorer.bias": torch.zeros((), dtype=torch.float64),
    }
    scores = problem.contrast(weights, alone, [alone], noise)
    order = (scores[1] / scores[0, 0]).round().long() - 1
    assert torch.equal(order.sort().values, torch.arange(size))
    return order


def test_the_encoder_learns_to_tell_true_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = []

    def watched(loss_of: Any, start: Any, *options: Any, **named: Any) -> Any:
        found = minimise(loss_of, start, *options, **named)
        # Of an order that no step has seen.
        losses.extend(float(loss_of(each, 10**6)) for each in (start, found))
        return found

    monkeypatch.setattr("gsebo.methods.baselines.stable.minimise", watched)
    problem_of(words_graph(), pretrain_epochs=150, pretrain_lr=0.01)
    assert losses[1] < 0.8 * losses[0]


def test_only_the_classifier_is_trained_with_labels() -> None:
    data = words_graph()
    short, long = (
        STABLE(**QUICK | {"max_epochs": n}, select_by="last").fit(data) for n in (3, 30)
    )
    nets = [model.model_.backbone for model in (short, long)]
    assert all(isinstance(net, StableNet) for net in nets)
    first, second = (dict(net.named_parameters()) for net in nets)
    for name, weight in first.items():
        assert torch.equal(weight, second[name]) != name.startswith("classifier.")


@pytest.mark.parametrize("divide", [False, True])
def test_hidden_edges_are_those_of_a_low_jaccard_similarity(divide: bool) -> None:
    data = words_graph()
    similarity = jaccard(data.x)
    if divide:
        data = with_fields(data, x=data.x / data.x.sum(1, keepdim=True).clamp(min=1))
    problem = problem_of(data, similarity_threshold=0.12, loop_weight=1.5)
    kept = adjacency(data) * (similarity >= 0.12)
    assert 0 < int(kept.sum()) < int(adjacency(data).sum())
    torch.testing.assert_close(dense(problem.found.seen), propagated(kept, 1.5))


def test_views_bring_back_a_share_of_the_hidden_edges() -> None:
    data = words_graph()
    problem = problem_of(data, recovered_share=0.4)
    pairs = adjacency(data).triu(1).nonzero().T
    hidden = torch.arange(pairs.shape[1]) % 3 == 0
    seen = problem._encoding(pairs[:, ~hidden])
    views = problem._views(seen, pairs, hidden)
    back = [view.pattern.num_entries - seen.pattern.num_entries for view in views]
    assert back == [2 * int(0.4 * int(hidden.sum()))] * 2
    first, second = (dense(view) > 0 for view in views)
    assert not torch.equal(first, second)
    given = adjacency(data) + torch.eye(data.num_nodes)
    assert bool((first <= given.bool()).all())
    nothing = problem._views(seen, pairs, torch.zeros_like(hidden))
    assert all(view is seen for view in nothing)


def test_patience_keeps_the_smallest_loss() -> None:
    seen = []

    def loss_of(weights: dict[str, Tensor], step: int) -> Tensor:
        seen.append(float(weights["x"].detach()))
        return (weights["x"] - 1).square()

    start = {"x": torch.tensor(0.0)}
    optimizer = make_optimizer("sgd", 1.5)
    # From 0 it jumps to 3 and further away.
    found = minimise(loss_of, start, optimizer, 50, patience=4)
    assert seen[:2] == [0.0, 3.0]
    assert len(seen) == 5
    assert float(found["x"]) == 0.0


# --- the refined graph ---------------------------------------------------------------


@given(
    nodes=st.integers(2, 9),
    count=st.integers(0, 12),
    seed=st.integers(0, 10**6),
)
def test_the_most_similar_are_those_of_a_full_sort(
    nodes: int, count: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few different rows, so that many are equally similar.
    embedding = torch.randint(0, 2, (nodes, 2), generator=generator).double()
    candidate = torch.rand(nodes, generator=generator) < 0.7
    found = {
        tuple(edge) for edge in most_similar(embedding, candidate, count).T.tolist()
    }
    unit = torch.nn.functional.normalize(embedding, dim=1)
    cosine = unit @ unit.T
    expected = set()
    for node in range(nodes):
        others = [other for other in range(nodes) if candidate[other]]
        others.sort(key=lambda other: (-round(float(cosine[node, other]), 9), other))
        expected |= {(other, node) for other in others[:count] if other != node}
    assert found == expected


def test_edges_go_and_come_by_the_cosine_of_representations() -> None:
    data = words_graph()
    problem = problem_of(data, cosine_threshold=0.5, num_neighbors=4, degree_power=1.0)
    unit = torch.nn.functional.normalize(problem.found.embedding, dim=1)
    cosine = unit @ unit.T
    kept = adjacency(data) * (cosine > 0.5)
    assert 0 < int(kept.sum()) < int(adjacency(data).sum())
    candidate = kept.sum(1) > 1
    expected = kept.clone()
    for node in range(data.num_nodes):
        ranked = cosine[node].masked_fill(~candidate, -2).argsort(descending=True)
        expected[node, ranked[:4]] = 1
    expected.fill_diagonal_(1)
    assert torch.equal((dense(problem.found.refined) > 0).double(), expected)


@pytest.mark.parametrize("power", [-2.0, -0.3, 0.0, 0.6, 10.0])
def test_neighbors_count_by_a_power_of_their_degree(power: float) -> None:
    edges = torch.tensor([[0, 1, 2, 3, 3], [1, 0, 0, 0, 2]])
    topology = Topology.from_edges(edges, 5, self_loops=True, device="cpu")
    pattern = topology.pattern
    found = dense(
        Propagation(pattern, degree_propagation(pattern, power, torch.float64))
    )
    matrix = torch.eye(5, dtype=torch.float64)
    matrix[edges[1], edges[0]] = 1
    powers = matrix * matrix.sum(1) ** power
    torch.testing.assert_close(found, powers / powers.sum(1, keepdim=True))


def test_the_usual_power_is_the_propagation_of_a_gcn() -> None:
    data = words_graph()
    pattern = Topology.from_edges(
        data.edge_index, data.num_nodes, self_loops=True, device="cpu"
    ).pattern
    found = degree_propagation(pattern, -0.5, torch.float64)
    assert torch.equal(found, symmetric_normalisation(pattern, torch.float64))


def test_a_large_power_of_a_large_degree_is_a_number() -> None:
    hub = torch.stack([torch.arange(1, 3000), torch.zeros(2999, dtype=torch.int64)])
    edges = torch.cat([hub, hub.flip(0)], dim=1)
    pattern = Topology.from_edges(edges, 3000, self_loops=True, device="cpu").pattern
    found = degree_propagation(pattern, 10.0, torch.float32)
    assert bool(found.isfinite().all())
    assert float(found.max()) <= 1


# --- the whole -----------------------------------------------------------------------


def test_the_member_is_what_was_trained() -> None:
    problem = problem_of(words_graph(), num_neighbors=3, similarity_threshold=0.1)
    weights = problem.initial_weights()
    (member,) = problem.members(weights, {})
    logits = problem.task.logits(weights, *member.propagation, None)
    torch.testing.assert_close(logits, problem.scores(weights, {}))


def test_it_fits_a_graph_with_nothing_to_refine() -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    bare = with_fields(words_graph(), edge_index=pair)
    model = STABLE(**QUICK, num_neighbors=5, similarity_threshold=0.5).fit(bare)
    # Nobody has two edges left, so that nobody is heard of.
    assert model.new_edge_index_.shape[1] == 0
    assert bool(model.probability_.isfinite().all())


def test_an_encoder_beyond_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsebo.memory.free_memory", lambda device: 50_000)
    with pytest.raises(InvalidInput, match=r"an encoder of 40 nodes takes .* GB"):
        problem_of(words_graph(), backbone_options={"embedding_channels": 512})


def test_it_refuses_a_power_beyond_reason() -> None:
    with pytest.raises(InvalidInput, match="degree_power"):
        STABLE(degree_power=11).fit(words_graph())
