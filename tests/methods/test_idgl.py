"""The graphs that IDGL learns one after another, and what it asks of them."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from gsebo.bilevel import Tree
from gsebo.methods.baselines.idgl import IDGL, IDGLProblem
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.training import Task

from .examples import small_graph, with_fields

NODES = 12
PLAIN = {"graph_dropout": 0.0, "embedding_dropout": 0.0}


@pytest.fixture(scope="module")
def data() -> Data:
    data = small_graph(NODES)
    return with_fields(data, x=data.x.double())


def task_of(data: Data, dropout: float = 0.0, layers: int = 2) -> Task:
    prepared = PreparedGraph(data, torch.device("cpu"))
    network = NetworkChoices("gcn", 3, layers, dropout, None)
    return make_task(prepared, network, weight_decay=0.1, seed=4)


def started(problem: IDGLProblem) -> tuple[Tree, Tree]:
    weights, outer = problem.initial_weights(), problem.initial_outer()
    for leaf in (*weights.values(), *outer.values()):
        leaf.requires_grad_()
    return weights, outer


def vanilla(task: Task) -> Tensor:
    """The propagation of the given graph as a matrix."""
    pattern = task.graph.pattern
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    strengths = task.backbone.initial_strength(pattern).detach()
    return dense.index_put((pattern.row_of_entry, pattern.column_of_entry), strengths)


@pytest.mark.parametrize("update_ratio", [0.0, 0.3])
def test_all_of_the_given_graph_is_the_vanilla_network(
    data: Data, update_ratio: float
) -> None:
    problem = IDGLProblem(
        task_of(data), IDGL(graph_skip=1.0, update_ratio=update_ratio)
    )
    weights, outer = started(problem)
    task = problem.task
    with torch.no_grad():
        plain = task.logits(weights, task.graph.pattern, None, None)
    torch.testing.assert_close(problem.scores(weights, outer), plain)
    assert torch.equal(problem.strengths(weights, outer), problem.initial_strengths)


def test_without_updates_every_graph_is_the_first(data: Data) -> None:
    problem = IDGLProblem(task_of(data), IDGL(update_ratio=0.0, tolerance=0.0))
    first, *later = problem.passes(*started(problem), None)
    for each in later:
        assert torch.equal(each.mixture, first.mixture)


def test_graphs_are_mixed_as_the_formula_says(data: Data) -> None:
    options = IDGL(graph_skip=0.7, update_ratio=0.4, max_iterations=2, tolerance=0.0)
    problem = IDGLProblem(task_of(data), options)
    first, second, third = problem.passes(*started(problem), None)
    given = vanilla(problem.task)

    def mixed(similarity: Tensor) -> Tensor:
        own = similarity / similarity.sum(1, keepdim=True)
        return 0.7 * given + 0.3 * own

    torch.testing.assert_close(first.mixture, mixed(first.similarity))
    for later in (second, third):
        expected = 0.4 * mixed(later.similarity) + 0.6 * first.mixture
        torch.testing.assert_close(later.mixture, expected)
    assert not torch.equal(second.similarity, third.similarity)


def test_nothing_of_the_given_graph_leaves_rows_that_sum_to_one(data: Data) -> None:
    problem = IDGLProblem(task_of(data), IDGL(graph_skip=0.0))
    weights, outer = started(problem)
    (member,) = problem.members(weights, outer)
    matrix = member.propagation.strengths.view(NODES, NODES)
    assert 0 <= float(matrix.min()) <= float(matrix.max()) <= 1
    torch.testing.assert_close(
        matrix.sum(1), torch.ones(NODES, dtype=torch.float64), atol=1e-4, rtol=0
    )


def test_embeddings_are_what_the_last_layer_reads(data: Data) -> None:
    problem = IDGLProblem(task_of(data), IDGL(max_iterations=1))
    weights, outer = started(problem)
    task = problem.task
    named = task.named_weights(weights)
    for found in problem.passes(weights, outer, None):
        hidden = found.mixture @ task.features @ named["layers.0.weight"]
        hidden = torch.relu(hidden + named["layers.0.bias"])
        torch.testing.assert_close(found.embedding, hidden)
        logits = found.mixture @ hidden @ named["layers.1.weight"]
        torch.testing.assert_close(found.logits, logits + named["layers.1.bias"])


@pytest.mark.parametrize("layers", [1, 3])
def test_any_number_of_layers_has_an_embedding(data: Data, layers: int) -> None:
    problem = IDGLProblem(task_of(data, layers=layers), IDGL(max_iterations=2))
    weights, outer = started(problem)
    channels = data.x.shape[1] if layers == 1 else 3
    assert outer["embedding_heads"].shape == (4, channels)
    assert problem.loss(weights, outer, 0).isfinite()


@pytest.mark.parametrize(
    ("tolerance", "graphs"), [(0.0, 6), (1e9, 2)], ids=["never", "at once"]
)
def test_iterations_stop_when_the_graph_hardly_changes(
    data: Data, tolerance: float, graphs: int
) -> None:
    problem = IDGLProblem(task_of(data), IDGL(max_iterations=5, tolerance=tolerance))
    assert len(problem.passes(*started(problem), None)) == graphs


def test_the_stopping_rule_compares_with_the_graph_before(data: Data) -> None:
    everything = IDGLProblem(task_of(data), IDGL(max_iterations=6, tolerance=0.0))
    weights, outer = started(everything)
    graphs = [each.similarity for each in everything.passes(weights, outer, None)]
    graphs = [graph.detach() for graph in graphs]
    size = graphs[0].square().sum()
    changes = [
        float((new - old).square().sum() / size) for old, new in pairwise(graphs)
    ]
    # Just above the third change, so that two graphs are not enough.
    tolerance = changes[2] * 1.001
    assert min(changes[:2]) > tolerance
    stopped = IDGLProblem(task_of(data), IDGL(max_iterations=6, tolerance=tolerance))
    assert len(stopped.passes(weights, outer, None)) == 4


def test_the_loss_is_the_first_and_the_mean_of_the_others(data: Data) -> None:
    options = IDGL(
        smoothness=0.7,
        connectivity=0.2,
        sparsity=0.3,
        max_iterations=3,
        tolerance=0.0,
        **PLAIN,
    )
    problem = IDGLProblem(task_of(data), options)
    weights, outer = started(problem)
    task, x = problem.task, data.x
    nodes = task.inner_nodes

    def one(found: Any) -> Tensor:
        s = found.similarity
        laplacian = s.sum(1).diag() - s
        return (
            cross_entropy(found.logits[nodes], task.labels[nodes])
            + 0.7 * torch.trace(x.T @ laplacian @ x) / NODES**2
            - 0.2 * s.sum(1).log().mean()
            + 0.3 * s.square().sum() / NODES**2
        )

    first, *later = (one(each) for each in problem.passes(weights, outer, None))
    leaves = [*weights.values(), *outer.values()]
    decay = 0.1 / 2 * sum(leaf.square().sum() for leaf in leaves)
    expected = first + sum(later) / 3 + decay
    torch.testing.assert_close(problem.loss(weights, outer, 1), expected)


def test_gradients_are_those_of_finite_differences(data: Data) -> None:
    options = IDGL(connectivity=0.1, sparsity=0.1, max_iterations=2, tolerance=0.0)
    problem = IDGLProblem(task_of(data, dropout=0.5), options)
    weights, outer = started(problem)
    (flat,), heads = weights.values(), tuple(outer.values())

    def loss(flat: Tensor, *heads: Tensor) -> Tensor:
        new = dict(zip(outer, heads, strict=True))
        return problem.loss(dict.fromkeys(weights, flat), new, 3)

    assert torch.autograd.gradcheck(loss, (flat, *heads), fast_mode=True)


def test_a_node_without_features_does_no_harm(data: Data) -> None:
    x = data.x.clone()
    x[3] = 0
    problem = IDGLProblem(task_of(with_fields(data, x=x)), IDGL(connectivity=0.1))
    weights, outer = started(problem)
    loss = problem.loss(weights, outer, 0)
    gradients = torch.autograd.grad(loss, [*weights.values(), *outer.values()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert problem.scores(weights, outer).isfinite().all()
