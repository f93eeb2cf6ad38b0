"""NeuralSparse: what a step and a prediction see of the graph, and how it learns."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo.methods.baselines.neuralsparse import (
    NeuralSparse,
    NeuralSparseProblem,
    temperature_at,
)
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.sparse import Noise, row_sum

from .examples import small_graph

BACKBONES = ("gcn", "gat", "sage", "sage-gcn", "jk")


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(40, average_degree=8.0)


def problem_of(data: Data, count: int = 3, **options: Any) -> NeuralSparseProblem:
    """The problem that a fit would train, in double precision."""
    exact = data.clone()
    exact.x = data.x.double()
    sizes = {"hidden_channels": 4, "num_neighbors": count, "scorer_channels": 6}
    model = NeuralSparse(**sizes, **options)
    prepared = PreparedGraph(exact, torch.device("cpu"))
    task = make_task(prepared, model.network(), weight_decay=0.01, seed=3)
    return NeuralSparseProblem(task, model)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("noise", [None, Noise(3, 5)])
def test_a_node_keeps_its_loop_and_few_neighbors(
    data: Data, backbone: str, noise: Noise | None
) -> None:
    problem = problem_of(data, backbone=backbone)
    graph = problem.task.graph
    pattern, strengths = problem.chosen(problem.initial_outer(), 0.7, noise)
    loops = graph.num_loops // graph.num_nodes
    degree = graph.pattern.row_counts - loops
    assert torch.equal(pattern.row_counts, degree.clamp(max=3) + loops)
    assert ((strengths >= 0) & (strengths <= 1)).all()
    own = pattern.row_of_entry == pattern.column_of_entry
    assert int(own.sum()) == graph.num_loops


def test_the_chosen_are_normalised_by_their_weights(data: Data) -> None:
    """A loop weighs one; the weights of a node with few neighbors sum to one."""
    outer = problem_of(data).initial_outer()
    weighed = problem_of(data, backbone="gat").chosen(outer, 0.7, None)
    loops = weighed.pattern.row_of_entry == weighed.pattern.column_of_entry
    assert (weighed.strengths[loops] == 1).all()
    degree = row_sum(weighed.pattern, weighed.strengths)
    few = (weighed.pattern.row_counts > 1) & (weighed.pattern.row_counts <= 3)
    torch.testing.assert_close(degree[few], torch.full_like(degree[few], 2))

    pattern, strengths = problem_of(data, backbone="gcn").chosen(outer, 0.7, None)
    ends = degree[pattern.row_of_entry] * degree[pattern.column_of_entry]
    torch.testing.assert_close(strengths, weighed.strengths / ends.sqrt())
    _, strengths = problem_of(data, backbone="sage-gcn").chosen(outer, 0.7, None)
    torch.testing.assert_close(
        strengths, weighed.strengths / degree[pattern.row_of_entry]
    )


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_the_scorer_learns_through_the_network(data: Data, backbone: str) -> None:
    """The gradient of the whole loss against finite differences."""
    problem = problem_of(data, backbone=backbone)
    weights, outer, step = problem.initial_weights(), problem.initial_outer(), 60
    names = [name for name in outer if name != "temperature"]

    def loss(*leaves: torch.Tensor) -> torch.Tensor:
        changed = outer | dict(zip(names, leaves, strict=True))
        return problem.loss(weights, changed, step)

    leaves = [outer[name].requires_grad_() for name in names]
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    with torch.no_grad():
        for number, gradient in enumerate(gradients):
            assert (gradient != 0).any()
            along = torch.linspace(-1, 1, gradient.numel()).double().view_as(gradient)
            ends = []
            for sign in (1, -1):
                moved = list(leaves)
                moved[number] = leaves[number] + sign * 1e-6 * along
                ends.append(loss(*moved))
            difference = (ends[0] - ends[1]) / 2e-6
            torch.testing.assert_close(
                difference, (gradient * along).sum(), rtol=1e-5, atol=1e-9
            )


def test_predictions_use_the_temperature_of_the_last_step(data: Data) -> None:
    problem = problem_of(data)
    weights, outer = problem.initial_weights(), problem.initial_outer()
    assert float(outer["temperature"]) == temperature_at(0) == 1.0
    assert outer["temperature"].dtype == torch.float64
    for steps in (1, 50, 51, 3001):
        outer = problem.settle(weights, outer, steps)
        now = temperature_at(steps - 1)
        assert float(outer["temperature"]) == pytest.approx(now)
        (member,) = problem.members(weights, outer)
        expected = problem.chosen(outer, now, None)
        assert torch.equal(member.propagation.strengths, expected.strengths)


@pytest.mark.parametrize("compat", [False, True])
def test_predictions_are_the_same_every_time(data: Data, compat: bool) -> None:
    problem = problem_of(data, compat=compat)
    weights, outer = problem.initial_weights(), problem.initial_outer()
    scores = problem.scores(weights, outer)
    assert torch.equal(scores, problem.scores(weights, outer))
    quiet = problem_of(data).scores(weights, outer)
    assert torch.equal(scores, quiet) != compat


def test_steps_draw_anew_and_losses_do_not(data: Data) -> None:
    problem = problem_of(data, dropout=0.0)
    weights, outer = problem.initial_weights(), problem.initial_outer()
    losses = [float(problem.loss(weights, outer, step)) for step in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("compat", [False, True])
def test_a_fit_moves_the_scorer_and_predicts_as_it_was_judged(
    data: Data, backbone: str, compat: bool
) -> None:
    options = {"backbone": backbone, "hidden_channels": 4, "max_epochs": 4}
    judged: list[torch.Tensor] = []
    model = NeuralSparse(
        **options, select_by="last", compat=compat, random_state=0, num_neighbors=2
    ).fit(data, watcher=lambda record, logits: judged.append(logits))
    torch.testing.assert_close(model.probability_, judged[-1].softmax(-1))
    torch.testing.assert_close(model.predict_proba(data), model.probability_)
    start = NeuralSparse(
        **options, structure_lr=0, select_by="last", random_state=0, num_neighbors=2
    ).fit(data)
    assert not torch.equal(model.strength_, start.strength_)
    assert 0 < int((model.strength_ > 0).sum()) <= 2 * 40


def test_as_many_neighbors_as_there_are_is_the_softmax_of_the_scores() -> None:
    data = small_graph(30)
    problem = problem_of(data, count=30, backbone="sage")
    pattern, strengths = problem.chosen(problem.initial_outer(), 1.0, None)
    assert pattern.num_entries == problem.task.graph.num_entries
    total = row_sum(pattern, strengths)
    torch.testing.assert_close(total, (pattern.row_counts > 0).double())
