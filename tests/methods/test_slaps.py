"""The graphs that SLAPS makes of features, and how it restores what is masked."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cosine_similarity,
    cross_entropy,
    elu,
)
from torch_geometric.data import Data

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.methods.baselines.slaps import (
    SLAPS,
    FeatureMask,
    GraphGenerator,
    SLAPSProblem,
)
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.sparse import Noise, make_features

from .examples import quick, small_graph, with_fields

NODES = 13
KINDS = ["fp", "full", "mlp", "mlp_d"]
STILL = {"edge_dropout": 0.0, "restoring_dropout": 0.0, "restoring_edge_dropout": 0.0}


def words(rows: int = NODES, columns: int = 9, share: float = 0.5) -> Tensor:
    draw = torch.Generator().manual_seed(7)
    return (torch.rand(rows, columns, generator=draw) < share).double()


@pytest.fixture(scope="module")
def data() -> Data:
    return with_fields(small_graph(NODES), x=words())


def problem_of(data: Data, **options: Any) -> SLAPSProblem:
    prepared = PreparedGraph(data, torch.device("cpu"))
    network = NetworkChoices("gcn", 3, 2, 0.0, None)
    task = make_task(prepared, network, weight_decay=0.1, seed=4)
    small = {"num_neighbors": 3, "restoring_hidden": 5, "restoring_epochs": 0}
    return SLAPSProblem(task, SLAPS(**small | options))


def shaken(tree: Tree, size: float = 0.1) -> Tree:
    draw = torch.Generator().manual_seed(5)
    noise = {k: torch.randn(v.shape, generator=draw).to(v) for k, v in tree.items()}
    return {k: (v + size * noise[k]).requires_grad_() for k, v in tree.items()}


def generated(kind: str, tree: Tree, x: Tensor, k: int = 3) -> Tensor:
    """(S + Sᵀ) / 2 with matrices of all pairs."""
    h = x
    if kind == "full":
        raw = (elu(tree["score"]) + 1).view(len(x), len(x))
        return (raw + raw.mT) / 2
    if kind != "fp":
        first, second = (
            leaf.diag() if leaf.dim() == 1 else leaf
            for leaf in (tree["weight0"], tree["weight1"])
        )
        h = torch.relu(x @ first + tree.get("bias0", 0)) @ second
        h = h + tree.get("bias1", 0)
    near = cosine_similarity(h[:, None], h[None], dim=-1)
    # Of equally similar nodes those with smaller numbers are taken.
    order = near.detach().clone().fill_diagonal_(-torch.inf).round(decimals=9)
    others = order.sort(dim=1, descending=True, stable=True).indices[:, :k]
    taken = torch.eye(len(x), dtype=x.dtype).scatter(1, others, 1.0)
    raw = near.relu() * taken
    if kind == "fp":
        others = others.sort(1).values
        pairs = torch.stack([torch.arange(len(x)).repeat_interleave(k), others.ravel()])
        nodes = torch.arange(len(x)).expand(2, -1)
        row, column = torch.cat([pairs, nodes], dim=1)
        raw = torch.zeros_like(taken).index_put((row, column), elu(tree["score"]) + 1)
    return (raw + raw.mT) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.15, 0.5])
def test_a_graph_is_that_of_dense_matrices(kind: str, share: float) -> None:
    x = words(columns=30, share=share)
    features = make_features(x, torch.float64, "cpu")
    assert isinstance(features, Tensor) == (share == 0.5)
    generator = GraphGenerator(features, kind, 3, "relu")
    tree = shaken(generator.initial())
    pattern, weights = generator.graph(tree, generator.search(tree))
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    found = dense.index_put((pattern.row_of_entry, pattern.column_of_entry), weights)
    expected = generated(kind, tree, x)
    torch.testing.assert_close(found, expected)
    sized = torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(0))
    leaves = list(tree.values())
    for ours, theirs in zip(
        torch.autograd.grad((found * sized).sum(), leaves),
        torch.autograd.grad((expected * sized).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_dense_matrices(data: Data, kind: str) -> None:
    problem = problem_of(data, generator=kind, restoring=3.0, masked=2.0, **STILL)
    weights, outer = problem.initial_weights(), shaken(problem.initial_outer())
    task, x = problem.task, data.x
    graph = generated(kind, outer, x)
    scale = graph.sum(1).rsqrt()
    graph = scale[:, None] * graph * scale
    named = task.named_weights(weights)
    hidden = graph @ x @ named["layers.0.weight"] + named["layers.0.bias"]
    logits = graph @ hidden.relu() @ named["layers.1.weight"] + named["layers.1.bias"]
    nodes = task.inner_nodes
    expected = cross_entropy(logits[nodes], task.labels[nodes]) + task.penalty(weights)
    seen, asked, right = FeatureMask(x, 2.0, 5.0).draw(Noise(task.seed, 6))
    hidden = graph @ seen @ outer["first"] + outer["first_bias"]
    restored = graph @ hidden.relu() @ outer["second"].mT + outer["second_bias"]
    found = restored.reshape(-1)[asked]
    expected = expected + 3 * binary_cross_entropy_with_logits(found, right)
    torch.testing.assert_close(problem.loss(weights, outer, 6), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(data: Data, kind: str) -> None:
    problem = problem_of(data, generator=kind, activation="tanh", masked=2.0)
    weights, outer = problem.initial_weights(), shaken(problem.initial_outer())
    (flat,) = weights.values()

    def loss(flat: Tensor, *leaves: Tensor) -> Tensor:
        new = dict(zip(outer, leaves, strict=True))
        return problem.loss(dict.fromkeys(weights, flat), new, 3)

    leaves = (flat.requires_grad_(), *outer.values())
    assert torch.autograd.gradcheck(loss, leaves, eps=1e-7, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_ones_are_masked_and_as_many_zeros_asked_for(share: float) -> None:
    x = words(60, 50, share)
    features = make_features(x, torch.float64, "cpu")
    mask = FeatureMask(features, 4.0, 2.0)
    assert mask.binary
    seen, asked, right = mask.draw(Noise(0, 1))
    dense = seen if isinstance(seen, Tensor) else seen.to_dense()
    flat, left = x.reshape(-1), dense.reshape(-1)
    assert torch.equal(flat[asked], right)
    assert asked.unique().numel() == asked.numel()
    # What is not seen is asked for, and nothing else was changed.
    assert torch.equal((flat != left).nonzero().squeeze(-1), asked[right == 1])
    ones = int(x.sum())
    assert abs(int(right.sum()) / ones - 0.25) < 0.08
    if share < 0.5:
        assert abs(int((right == 0).sum()) / (2 * 0.25 * ones) - 1) < 0.3
    again, _, _ = mask.draw(Noise(0, 2))
    other = again if isinstance(again, Tensor) else again.to_dense()
    assert not torch.equal(other, dense)


def test_other_numbers_are_masked_and_asked_for() -> None:
    x = torch.randn(30, 20, generator=torch.Generator().manual_seed(1))
    mask = FeatureMask(x, 5.0, 3.0)
    assert not mask.binary
    seen, asked, right = mask.draw(Noise(0, 1))
    assert isinstance(seen, Tensor)
    assert torch.equal(x.reshape(-1)[asked], right)
    assert not seen.reshape(-1)[asked].any()
    assert abs(asked.numel() / x.numel() - 0.2) < 0.06


def test_restoring_alone_lowers_its_loss_and_reads_no_label(data: Data) -> None:
    options = {**STILL, "masked": 2.0, "structure_lr": 0.01}
    problem = problem_of(data, restoring_epochs=60, **options)
    start, outer = problem_of(data, **options).initial_outer(), problem.initial_outer()
    noise = Noise(0, 999)
    before = problem.restoring(start, problem.generated(start), noise)
    assert problem.restoring(outer, problem.generated(outer), noise) < before
    other = problem_of(
        with_fields(data, y=data.y.roll(1)), restoring_epochs=60, **options
    ).initial_outer()
    assert all(torch.equal(outer[name], other[name]) for name in outer)


def test_the_given_edges_are_not_used() -> None:
    data = small_graph()
    bare = with_fields(data, edge_index=data.edge_index[:, :1])
    full, one = (quick("slaps").fit(graph) for graph in (data, bare))
    assert torch.equal(full.probability_, one.probability_)
    assert one.new_edge_index_.shape[1] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_without_features(data: Data, kind: str) -> None:
    for x in (data.x * (torch.arange(NODES) > 2)[:, None], torch.zeros_like(data.x)):
        problem = problem_of(with_fields(data, x=x), generator=kind, masked=2.0)
        weights, outer = problem.initial_weights(), problem.initial_outer()
        outer = {name: leaf.requires_grad_() for name, leaf in outer.items()}
        loss = problem.loss(weights, outer, 0)
        found = torch.autograd.grad(loss, list(outer.values()), allow_unused=True)
        assert all(each is None or each.isfinite().all() for each in found)
        assert problem.scores(weights, outer).isfinite().all()


def test_a_generator_that_does_not_fit_is_refused(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsebo.memory.free_memory", lambda _: 1000)
    with pytest.raises(InvalidInput, match="generator='mlp' on 13 nodes with 9 feat"):
        problem_of(data)
    problem_of(data, generator="fp")
