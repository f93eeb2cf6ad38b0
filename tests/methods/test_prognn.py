"""Pro-GNN: what each turn minimises, and the proximal steps in between."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from gsebo.methods.baselines.prognn import ProGNN, ProGNNProblem
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import PreparedGraph, make_task

from .examples import quick, small_graph, with_fields

NUM_NODES = 12
AMOUNTS = {"structure_lr": 1.0, "sparsity": 0.02, "low_rank": 0.1, "nuclear_every": 1}
PARTS = {"supervision": 0.7, "smoothness": 0.3}


@pytest.fixture(scope="module")
def data() -> Data:
    graph = small_graph(NUM_NODES, num_features=4)
    return with_fields(graph, x=graph.x.double())


def problem_of(data: Data, **changes: Any) -> ProGNNProblem:
    prepared = PreparedGraph(data, torch.device("cpu"))
    model = ProGNN(hidden_channels=3, dropout=0.0, **AMOUNTS | PARTS | changes)
    task = make_task(prepared, model.network(), weight_decay=0.01, seed=3)
    return ProGNNProblem(task, model)


def adjacency_of(data: Data) -> Tensor:
    matrix = torch.zeros(NUM_NODES, NUM_NODES, dtype=torch.float64)
    matrix[tuple(data.edge_index)] = 1
    return torch.maximum(matrix, matrix.T)


def any_symmetric(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (NUM_NODES, NUM_NODES)
    matrix = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (matrix + matrix.T) / 2


def written_out(problem: ProGNNProblem, data: Data, matrix: Tensor) -> Tensor:
    """What the structure minimises, from the formulas."""
    weights = problem.task.named_weights(problem.initial_weights())
    first, first_bias, second, second_bias = weights.values()
    looped = matrix + torch.eye(NUM_NODES, dtype=torch.float64)
    root = looped.sum(1).rsqrt()
    step = root[:, None] * looped * root
    hidden = torch.relu(step @ (data.x @ first) + first_bias)
    logits = step @ (hidden @ second) + second_bias
    fit = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
    scaled = (matrix.sum(1) + 1e-3).rsqrt()
    laplacian = scaled[:, None] * (torch.diag(matrix.sum(1)) - matrix) * scaled
    smoothness = torch.trace(data.x.T @ laplacian @ data.x)
    distance = (matrix - adjacency_of(data)).square().sum().sqrt()
    return distance + PARTS["supervision"] * fit + PARTS["smoothness"] * smoothness


def test_the_turn_of_the_structure(data: Data) -> None:
    problem, weights = problem_of(data), problem_of(data).initial_weights()
    matrix = any_symmetric().requires_grad_()
    loss = problem.loss(weights, {"adjacency": matrix}, 0)
    expected = written_out(problem, data, matrix)
    torch.testing.assert_close(loss, expected)
    (found,) = torch.autograd.grad(loss, matrix)
    (wanted,) = torch.autograd.grad(expected, matrix)
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found, (wanted + wanted.T) / 2)


def test_the_turn_of_the_weights_is_plain_training(data: Data) -> None:
    problem = problem_of(data)
    weights, task = problem.initial_weights(), problem.task
    loss = problem.loss(weights, problem.initial_outer(), 0)
    vanilla = task.logits(weights, task.graph.pattern, None, None)
    torch.testing.assert_close(loss, task.loss_of(vanilla) + task.penalty(weights))


def test_at_the_given_graph_the_distance_has_no_say(data: Data) -> None:
    problem = problem_of(data, supervision=0.0, smoothness=0.0)
    matrix = problem.initial_outer()["adjacency"].requires_grad_()
    loss = problem.loss(problem.initial_weights(), {"adjacency": matrix}, 0)
    (found,) = torch.autograd.grad(loss, matrix)
    assert not found.any()


def test_settling_is_three_proximal_steps(data: Data) -> None:
    matrix = 3 * any_symmetric(1) - 1
    left, values, right = torch.linalg.svd(matrix)
    shrunk = left @ torch.diag((values - 0.1).clamp(min=0)) @ right
    shrunk = shrunk.sign() * (shrunk.abs() - 0.02).clamp(min=0)
    found = problem_of(data).settle({}, {"adjacency": matrix}, 0)["adjacency"]
    torch.testing.assert_close(found, shrunk.clamp(0, 1))
    assert torch.equal(found, found.T)
    assert 0 == float(found.min()) <= float(found.max()) == 1


def test_rarer_decompositions_shrink_by_as_much(data: Data) -> None:
    rare = problem_of(data, nuclear_every=3, sparsity=0.0)
    three = problem_of(data, low_rank=0.3, sparsity=0.0)
    outer = {"adjacency": any_symmetric(2)}
    settled = [rare.settle({}, outer, 2 * turn)["adjacency"] for turn in range(6)]
    expected = three.settle({}, outer, 0)["adjacency"]
    changed = [not torch.equal(each, outer["adjacency"]) for each in settled]
    assert changed == [False, False, True, False, False, True]
    torch.testing.assert_close(settled[2], expected)


def test_a_structure_that_does_not_learn_is_plain_training(data: Data) -> None:
    common = {"hidden_channels": 4, "random_state": 0, "select_by": "last"}
    still = {"structure_lr": 0.0, "inner_lr": 0.05, "max_epochs": 6}
    model = ProGNN(**common, **still).fit(data)
    vanilla = Vanilla(**common, inner_lr=0.05, max_epochs=12).fit(data)
    torch.testing.assert_close(model.probability_, vanilla.probability_)
    torch.testing.assert_close(model.strength_, vanilla.strength_)
    assert model.history_[-1].inner_steps == 12


def test_a_fit_ends_with_a_symmetric_graph_of_lower_rank(data: Data) -> None:
    options = {"structure_lr": 0.05, "random_state": 0, "select_by": "last"}

    def strengths(low_rank: float) -> Tensor:
        model = quick("prognn", low_rank=low_rank, **options).fit(data)
        (member,) = model.model_.members
        pattern, values = member.propagation
        matrix = values.new_zeros(NUM_NODES, NUM_NODES)
        matrix[pattern.row_of_entry, pattern.column_of_entry] = values
        torch.testing.assert_close(matrix, matrix.T)
        assert 0 <= float(values.min()) <= float(values.max()) <= 1
        return matrix - torch.diag(matrix.diagonal())

    nuclear = [float(torch.linalg.matrix_norm(strengths(b), "nuc")) for b in (0.0, 2.0)]
    assert nuclear[1] < 0.9 * nuclear[0]
