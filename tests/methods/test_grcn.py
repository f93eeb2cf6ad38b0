"""The graph that GRCN revises, against the same with dense matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torch_geometric.data import Data

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.methods.baselines.grcn import GRCN, GRCNProblem, weighed
from gsebo.methods.baselines.shared import EntrySum, LastOf
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.training import Task

from .examples import quick, small_graph, with_fields

NODES = 14


@pytest.fixture(scope="module")
def data() -> Data:
    data = small_graph(NODES)
    return with_fields(data, x=data.x.double())


def task_of(data: Data, dropout: float = 0.0) -> Task:
    prepared = PreparedGraph(data, torch.device("cpu"))
    network = NetworkChoices("gcn", 3, 2, dropout, None)
    return make_task(prepared, network, weight_decay=0.1, seed=4)


def shaken(outer: Tree) -> Tree:
    """The same a little off its start, where all weights of a feature are one."""
    draw = torch.Generator().manual_seed(0)
    noise = {k: torch.randn(v.shape, generator=draw).to(v) for k, v in outer.items()}
    return {k: (v + 0.3 * noise[k]).requires_grad_() for k, v in outer.items()}


def adjacency(data: Data) -> Tensor:
    """A + I with the weights of the edges."""
    dense = torch.eye(NODES, dtype=torch.float64)
    weight = data.edge_weight if "edge_weight" in data else None
    weight = torch.ones(data.num_edges) if weight is None else weight
    source, target = data.edge_index
    return dense.index_put((target, source), weight.double(), accumulate=True)


def propagation(weights: Tensor) -> Tensor:
    scale = weights.sum(1).rsqrt()
    return scale[:, None] * weights * scale


def revised(data: Data, outer: Tree, method: GRCN) -> Tensor:
    """What the module's first lines say, with matrices of all pairs."""
    given = propagation(adjacency(data))
    first, second = (
        leaf.diag() if leaf.dim() == 1 else leaf for leaf in outer.values()
    )
    z = given @ torch.tanh(given @ data.x @ first) @ second
    z = normalize(z) if method.normalize else z
    products = z @ z.mT
    others = products.detach().clone().fill_diagonal_(-torch.inf)
    places = others.topk(method.num_neighbors - 1).indices
    taken = torch.eye(NODES, dtype=torch.float64).scatter(1, places, 1.0)
    chosen = products.relu() * taken
    return propagation(adjacency(data) + chosen + chosen.mT)


def as_matrix(problem: GRCNProblem, weights: Tree, outer: Tree) -> Tensor:
    (member,) = problem.members(weights, outer)
    pattern, strengths = member.propagation
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    return dense.index_put((pattern.row_of_entry, pattern.column_of_entry), strengths)


@pytest.mark.parametrize("embedding", ["diagonal", "dense"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_graph_is_that_of_dense_matrices(
    data: Data, embedding: str, normalize: bool, weighted: bool
) -> None:
    if weighted:
        draw = torch.Generator().manual_seed(1)
        weight = torch.rand(data.num_edges, generator=draw) + 0.5
        data = with_fields(data, edge_weight=weight)
    method = GRCN(
        num_neighbors=4, embedding=embedding, embedding_hidden=6, normalize=normalize
    )
    problem = GRCNProblem(task_of(data), method)
    outer = shaken(problem.initial_outer())
    found = as_matrix(problem, problem.initial_weights(), outer)
    torch.testing.assert_close(found, revised(data, outer, method).detach())


def test_the_loss_and_its_gradients_are_those_of_dense_matrices(data: Data) -> None:
    method = GRCN(num_neighbors=3)
    problem = GRCNProblem(task_of(data), method)
    weights, outer = problem.initial_weights(), shaken(problem.initial_outer())
    task = problem.task
    graph, named = revised(data, outer, method), task.named_weights(weights)
    hidden = graph @ data.x @ named["layers.0.weight"] + named["layers.0.bias"]
    logits = graph @ hidden.relu() @ named["layers.1.weight"] + named["layers.1.bias"]
    nodes = task.inner_nodes
    expected = cross_entropy(logits[nodes], task.labels[nodes]) + task.penalty(weights)
    loss = problem.loss(weights, outer, 0)
    torch.testing.assert_close(loss, expected)
    leaves = list(outer.values())
    for sparse, dense in zip(
        torch.autograd.grad(loss, leaves),
        torch.autograd.grad(expected, leaves),
        strict=True,
    ):
        assert sparse.abs().max() > 0
        torch.testing.assert_close(sparse, dense)


def test_gradients_are_those_of_finite_differences(data: Data) -> None:
    problem = GRCNProblem(task_of(data, dropout=0.5), GRCN(num_neighbors=4))
    weights, outer = problem.initial_weights(), shaken(problem.initial_outer())
    (flat,) = weights.values()

    def loss(flat: Tensor, *layers: Tensor) -> Tensor:
        new = dict(zip(outer, layers, strict=True))
        return problem.loss(dict.fromkeys(weights, flat), new, 3)

    leaves = (flat.requires_grad_(), *outer.values())
    assert torch.autograd.gradcheck(loss, leaves, eps=1e-7, atol=1e-5, fast_mode=True)


def test_the_fast_form_keeps_its_first_neighbors(data: Data) -> None:
    slow, fast = (
        GRCNProblem(task_of(data), GRCN(num_neighbors=3, fast=fast))
        for fast in (False, True)
    )
    weights, start = slow.initial_weights(), slow.initial_outer()
    torch.testing.assert_close(
        as_matrix(slow, weights, start), as_matrix(fast, weights, start)
    )
    draw = torch.Generator().manual_seed(3)
    far = {k: torch.randn(v.shape, generator=draw).to(v) for k, v in start.items()}
    first, moved = as_matrix(slow, weights, start), as_matrix(fast, weights, far)
    # What was joined may weigh nothing now, but nothing else is joined.
    assert not ((moved > 0) & (first == 0)).any()
    assert ((as_matrix(slow, weights, far) > 0) & (first == 0)).any()


def test_only_itself_is_the_given_graph_with_heavier_loops(data: Data) -> None:
    problem = GRCNProblem(task_of(data), GRCN(num_neighbors=1))
    found = as_matrix(problem, problem.initial_weights(), problem.initial_outer())
    loops = 2 * torch.eye(NODES, dtype=torch.float64)
    torch.testing.assert_close(found, propagation(adjacency(data) + loops))


def test_nodes_without_features_and_graphs_without_edges(data: Data) -> None:
    empty = with_fields(data, edge_index=data.edge_index[:, :0])
    bare = with_fields(empty, x=torch.zeros_like(data.x))
    for graph in (empty, bare):
        problem = GRCNProblem(task_of(graph), GRCN(num_neighbors=3))
        weights, outer = problem.initial_weights(), shaken(problem.initial_outer())
        loss = problem.loss(weights, outer, 0)
        gradients = torch.autograd.grad(loss, list(outer.values()))
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert problem.scores(weights, outer).isfinite().all()


def test_an_embedding_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gsebo.memory.free_memory", lambda _: 1000)
    with pytest.raises(InvalidInput, match="an embedding of 14 nodes in 8 channels"):
        GRCNProblem(task_of(small_graph(NODES)), GRCN())


def test_what_is_added_is_told() -> None:
    model = quick("grcn").fit(small_graph())
    assert model.new_edge_index_.shape[1] > 0
    assert (model.new_edge_strength_ > 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 20), max_size=3), st.integers(0, 99))
def test_sparse_matrices_are_added(size: int, counts: list[int], seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    parts = [torch.randint(size, (2, count), generator=draw) for count in (0, *counts)]
    values = [torch.randn(part.shape[1], generator=draw).double() for part in parts]
    added = EntrySum(size, *((row, column) for row, column in parts))
    expected = torch.zeros(size, size, dtype=torch.float64)
    for (row, column), value in zip(parts, values, strict=True):
        expected = expected.index_put((row, column), value, accumulate=True)
    pattern = added.pattern
    position = pattern.row_of_entry * size + pattern.column_of_entry
    assert position.unique().numel() == position.numel()
    found = torch.zeros(size * size, dtype=torch.float64)
    found[position] = added(*values)
    torch.testing.assert_close(found.view(size, size), expected)


def test_an_answer_is_remembered_until_a_number_changes() -> None:
    asked = []
    last = LastOf(lambda tree: asked.append(1) or len(asked))
    tree = {"a": torch.ones(2)}
    assert last(tree) == last({"a": torch.ones(2)}) == 1
    tree["a"][0] = 2
    assert last(tree) == 2 == len(asked)
    assert last({"b": torch.ones(2)}) == 3


def test_a_vector_stands_for_a_diagonal_matrix() -> None:
    x, w = torch.randn(3, 4), torch.randn(4)
    torch.testing.assert_close(weighed(x, w), weighed(x, w.diag()))
