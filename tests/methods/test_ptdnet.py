"""PTDNet: gates on edges, drawn in training and at rest in predictions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.bilevel import Tree
from gsebo.methods.baselines.ptdnet import PTDNet, PTDNetProblem
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.sparse import Noise, SparseFeatures

from .examples import small_graph

every_backbone = pytest.mark.parametrize("backbone", PTDNet.supported_backbones)
SEED, STEP, DECAY = 3, 4, 0.01


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(24)


def problem_of(data: Data, **options: Any) -> PTDNetProblem:
    """The problem that a fit would train, in double precision."""
    model = PTDNet(hidden_channels=4, **options)
    exact = data.clone()
    exact.x = data.x.double()
    prepared = PreparedGraph(exact, torch.device("cpu"))
    task = make_task(prepared, model.network(), weight_decay=DECAY, seed=SEED)
    return PTDNetProblem(task, model)


def uneven(tree: Tree) -> Tree:
    """Parameters without the zeros of an initialisation."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: leaf + 0.3 * torch.randn(leaf.shape, generator=generator).to(leaf)
        for name, leaf in tree.items()
    }


def start_of(problem: PTDNetProblem) -> tuple[Tree, Tree]:
    return uneven(problem.initial_weights()), uneven(problem.initial_outer())


def edge_logits(problem: PTDNetProblem, outer: Tree, layer: int, h: Any) -> Tensor:
    """What the network of a layer says, edge by edge, in plain torch."""
    x = h.to_dense() if isinstance(h, SparseFeatures) else h
    part = {
        name.removeprefix(f"layers.{layer}."): leaf
        for name, leaf in outer.items()
        if name.startswith(f"layers.{layer}.")
    }
    source, target = problem.task.graph.graph.edge_index
    p = torch.relu(x @ part["source_weight"] + part["source_bias"])[source]
    q = torch.relu(x @ part["target_weight"] + part["target_bias"])[target]
    joint = torch.cat([p, q], dim=1) @ part["joint_weight"] + part["joint_bias"]
    return joint.squeeze(1)


def inputs_of(problem: PTDNetProblem, weights: Tree, strengths: Any) -> list[Any]:
    """What each layer sees."""
    seen = []

    def record(layer: int, h: Any) -> Tensor:
        seen.append(h)
        return strengths[layer]

    problem.task.logits(weights, problem.task.graph.pattern, record, None)
    return seen


def terms(data: Data, name: str, **options: Any) -> float:
    """How much a penalty of weight one adds to the loss."""
    off = dict.fromkeys(("l0_weight", "nuclear_weight", "consistency_weight"), 0.0)
    without = problem_of(data, **off, **options)
    having = problem_of(data, **off | {name: 1.0}, **options)
    start = start_of(without)
    return float(having.loss(*start, STEP) - without.loss(*start, STEP))


@pytest.mark.parametrize("passes", [1, 3])
def test_the_l0_term_is_the_closed_form(data: Data, passes: int) -> None:
    """With one layer: mean over edges of sigmoid(w - t log(-gamma / zeta))."""
    options = {"num_layers": 1, "passes": passes, "gamma": -0.2, "zeta": 1.3}
    problem = problem_of(data, **options)
    _, outer = start_of(problem)
    logits = edge_logits(problem, outer, 0, problem.task.features)
    temperature = 2 * 0.99**STEP
    expected = torch.sigmoid(logits - temperature * math.log(0.2 / 1.3)).mean()
    found = terms(data, "l0_weight", **options)
    assert found == pytest.approx(float(expected), rel=1e-9)


def test_the_l0_term_counts_open_gates(data: Data) -> None:
    """Mean over many passes of the share of gates that are not 0, by layer."""
    problem = problem_of(data, num_layers=1, init_temperature=0.7)
    weights, outer = start_of(problem)
    first = edge_logits(problem, outer, 0, problem.task.features)
    drawn = [
        problem.random_pass(weights, outer, first, 0.7, Noise(SEED, 1), 2 * number)
        for number in range(400)
    ]
    shares = torch.stack([(each.gates > 0).double().mean() for each in drawn])
    spread = float(shares.std()) / math.sqrt(len(drawn))
    assert abs(float(shares.mean() - drawn[0].open_share)) < 4 * spread
    assert all(0 <= each.gates.min() <= each.gates.max() <= 1 for each in drawn)


def test_compat_sums_over_passes_what_has_no_gradient(data: Data) -> None:
    layers, passes = 2, 3
    found = terms(data, "l0_weight", num_layers=layers, passes=passes, compat=True)
    assert found == pytest.approx(layers * passes)
    gradients = []
    for weight in (0.0, 10.0):
        problem = problem_of(data, compat=True, l0_weight=weight)
        weights, outer = start_of(problem)
        outer = {name: leaf.requires_grad_() for name, leaf in outer.items()}
        loss = problem.loss(weights, outer, STEP)
        gradients.append(torch.autograd.grad(loss, list(outer.values())))
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("compat", [False, True])
def test_the_nuclear_term_is_that_of_dense_matrices(data: Data, compat: bool) -> None:
    """All passes, or with compat the last; edges alone, without self-loops."""
    options = {"num_singular_values": 2, "power_iterations": 300, "compat": compat}
    problem = problem_of(data, **options)
    weights, outer = start_of(problem)
    first = edge_logits(problem, outer, 0, problem.task.features)
    source, target = problem.task.graph.graph.edge_index
    by_pass = []
    for number in range(3):
        gates = problem.random_pass(
            weights, outer, first, 2 * 0.99**STEP, Noise(SEED, STEP), 2 * number
        ).gates.detach()
        dense = gates.new_zeros(len(gates), data.num_nodes, data.num_nodes)
        dense[:, target, source] = gates
        by_pass.append(float(torch.linalg.svdvals(dense)[:, :2].sum()))
    expected = by_pass[-1] if compat else sum(by_pass) / 3
    found = terms(data, "nuclear_weight", **options)
    assert found == pytest.approx(expected, rel=1e-7)


def test_the_passes_are_drawn_apart_and_pulled_together(data: Data) -> None:
    problem = problem_of(data)
    weights, outer = start_of(problem)
    first = edge_logits(problem, outer, 0, problem.task.features)
    temperature = 2 * 0.99**STEP
    logits = torch.stack(
        [
            problem.random_pass(
                weights, outer, first, temperature, Noise(SEED, STEP), 2 * number
            ).logits
            for number in range(3)
        ]
    )
    expected = (logits - logits.mean(0)).square().sum() / 2
    found = terms(data, "consistency_weight")
    assert 0 < found == pytest.approx(float(expected.detach()), rel=1e-7)
    assert terms(data, "consistency_weight", passes=1) == pytest.approx(0, abs=1e-9)
    off = {"l0_weight": 0.0, "nuclear_weight": 0.0, "consistency_weight": 0.0}
    plain = problem_of(data, **off)
    squares = sum(
        float(leaf.square().sum())
        for tree in (weights, outer)
        for leaf in tree.values()
    )
    expected = plain.task.loss_of(logits.mean(0)) + DECAY / 2 * squares
    torch.testing.assert_close(plain.loss(weights, outer, STEP), expected)


@every_backbone
def test_the_derivative_of_the_loss_is_that_of_finite_differences(
    data: Data, backbone: str
) -> None:
    problem = problem_of(
        data, backbone=backbone, power_iterations=300, pair_channels=3, passes=2
    )
    start = start_of(problem)
    generator = torch.Generator().manual_seed(5)

    for place in (0, 1):
        tree = {k: leaf.clone().requires_grad_() for k, leaf in start[place].items()}
        loss = problem.loss(*(tree if k == place else start[k] for k in (0, 1)), STEP)
        slopes = torch.autograd.grad(loss, list(tree.values()))
        ways = [torch.randn(s.shape, generator=generator).to(s) for s in slopes]
        along = sum(float((s * w).sum()) for s, w in zip(slopes, ways, strict=True))
        ends = []
        for size in (1e-6, -1e-6):
            moved = {
                name: leaf + size * way
                for (name, leaf), way in zip(start[place].items(), ways, strict=True)
            }
            trees = [moved if k == place else start[k] for k in (0, 1)]
            ends.append(float(problem.loss(*trees, STEP)))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(along, rel=1e-4, abs=1e-6)


@every_backbone
def test_predictions_have_no_noise_and_strengths_between_zero_and_one(
    data: Data, backbone: str
) -> None:
    problem = problem_of(data, backbone=backbone, dropout=0.5)
    weights, outer = start_of(problem)
    (member,) = problem.members(weights, outer)
    (again,) = problem.members(weights, outer)
    strengths = member.propagation.strengths
    assert torch.equal(strengths, again.propagation.strengths)
    task = problem.task
    assert strengths.shape == (task.backbone.num_propagations, task.graph.num_entries)
    assert 0 <= float(strengths.min()) <= float(strengths.max()) <= 1
    # Every layer: the gates of sigmoid(w) on what the layer sees, then normalised.
    for layer, h in enumerate(inputs_of(problem, weights, strengths)):
        s = torch.sigmoid(edge_logits(problem, outer, layer, h))
        gates = (1.2 * s - 0.1).clamp(0, 1)
        whole = torch.cat([gates, gates.new_ones(task.graph.num_loops)])
        expected = task.backbone.normalise(task.graph.pattern, whole)
        torch.testing.assert_close(strengths[layer], expected)


def test_the_graph_of_a_gcn_is_normalised_by_row_sums(data: Data) -> None:
    problem = problem_of(data, num_layers=1)
    weights, outer = start_of(problem)
    (member,) = problem.members(weights, outer)
    source, target = problem.task.graph.graph.edge_index
    s = torch.sigmoid(edge_logits(problem, outer, 0, problem.task.features))
    dense = torch.eye(data.num_nodes, dtype=torch.float64)
    dense[target, source] = (1.2 * s - 0.1).clamp(0, 1)
    scale = dense.sum(1).rsqrt()
    expected = scale[:, None] * dense * scale
    pattern = member.propagation.pattern
    told = expected[pattern.row_of_entry, pattern.column_of_entry]
    torch.testing.assert_close(member.propagation.strengths[0], told)


def test_a_step_is_a_function_of_its_number(data: Data) -> None:
    problem = problem_of(data)
    start = start_of(problem)
    losses = [float(problem.loss(*start, step)) for step in (4, 4, 5)]
    assert losses[0] == losses[1] != losses[2]


def test_the_temperature_falls_to_a_floor() -> None:
    model = PTDNet()
    assert [model.temperature(step) for step in (0, 1)] == [2.0, pytest.approx(1.98)]
    assert model.temperature(10_000) == 0.05


def test_the_price_of_open_gates_closes_them(data: Data) -> None:
    options: dict[str, Any] = {"max_epochs": 30, "evaluate_every": 30, "passes": 1}
    options |= {"structure_lr": 0.05, "random_state": 0, "nuclear_weight": 0.0}
    options |= {"hidden_channels": 8}
    closed = []
    for price in (0.0, 10.0):
        model = PTDNet(l0_weight=price, **options).fit(data)
        closed.append(float((model.strength_ == 0).float().mean()))
    assert closed[0] < 0.9 < 0.99 < closed[1]


@pytest.mark.parametrize("shared", [True, False])
def test_passes_may_share_their_dropout_masks(data: Data, shared: bool) -> None:
    """With gates that are all open, dropout alone tells one pass from another."""
    options = {"l0_weight": 0.0, "nuclear_weight": 0.0, "shared_dropout": shared}
    problem = problem_of(data, dropout=0.5, num_layers=1, **options)
    weights, outer = start_of(problem)
    # The last bias lifts all logits of the gates.
    lifted = {
        name: leaf + 60 if leaf.shape == (1,) else leaf for name, leaf in outer.items()
    }
    assert any(leaf.shape == (1,) for leaf in outer.values())
    first = edge_logits(problem, lifted, 0, problem.task.features)
    assert float(first.min()) > 30
    passes = [
        problem.random_pass(weights, lifted, first, 1.0, *each).logits
        for each in problem._noise_of_passes(STEP)
    ]
    assert len(passes) == 3
    assert torch.allclose(passes[0], passes[1]) == shared
