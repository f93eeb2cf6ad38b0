"""BGCN: what each epoch is trained on, and what predictions are averaged over."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.bilevel import Tree
from gsebo.methods.baselines.bgcn import BGCN, BGCNProblem
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.training import Checkpoint
from gsebo.training.tape_derivatives import FLAT

from .examples import assert_same_fit, small_graph

# After 4, 7 and 10 epochs the model is fitted; the last 4 epochs are averaged.
QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 12,
    "warmup_epochs": 4,
    "refit_every": 3,
    "average_after": 8,
    "random_iterations": 4,
    "refit_iterations": 3,
    "random_state": 0,
}
PLAN = BGCN(**QUICK)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


def problem_of(data: Data, *, compat: bool = False, delta: float = 0.01) -> BGCNProblem:
    prepared = PreparedGraph(data, torch.device("cpu"))
    method = BGCN(**QUICK, compat=compat, delta=delta)
    task = make_task(prepared, method.network(), weight_decay=0.1, seed=3)
    return BGCNProblem(task, method)


def walked(problem: BGCNProblem, steps: int) -> tuple[Tree, Tree]:
    """The weights and what is remembered after some steps, which only shift them."""
    weights, outer = problem.initial_weights(), problem.initial_outer()
    for step in range(1, steps + 1):
        weights = {FLAT: weights[FLAT] + 0.01}
        with torch.no_grad():
            outer = problem.settle(weights, outer, step)
    return weights, outer


@pytest.mark.parametrize("steps", [8, 9, 12])
def test_members_say_what_the_running_mean_says(data: Data, steps: int) -> None:
    problem = problem_of(data)
    weights, outer = walked(problem, steps)
    members = problem.members(weights, outer)
    assert len(members) == max(steps - PLAN.average_after, 1)
    logits = [
        problem.task.logits(own or weights, *graph, None) for graph, own in members
    ]
    mean = torch.stack(logits).softmax(-1).mean(0)
    torch.testing.assert_close(problem.scores(weights, outer).softmax(-1), mean)


def test_before_anything_is_averaged_the_given_graph_predicts(data: Data) -> None:
    problem = problem_of(data)
    for steps in (0, PLAN.warmup_epochs, PLAN.average_after):
        weights, outer = walked(problem, steps)
        vanilla = problem.task.logits(weights, problem.task.graph.pattern, None, None)
        torch.testing.assert_close(problem.scores(weights, outer), vanilla)


def test_the_last_member_is_the_last_step(data: Data) -> None:
    problem = problem_of(data)
    weights, outer = walked(problem, PLAN.max_epochs)
    graph, own = problem.members(weights, outer)[-1]
    assert own is not None
    assert torch.equal(own[FLAT], weights[FLAT])
    trained_on = problem.drawn(outer, PLAN.max_epochs - 1)
    assert torch.equal(graph.pattern.columns, trained_on.pattern.columns)
    assert torch.equal(graph.strengths, trained_on.strengths)
    before = problem.drawn(outer, PLAN.max_epochs - 2)
    assert not torch.equal(graph.strengths, before.strengths)


def test_drawn_graphs_follow_the_blocks_and_are_undirected(data: Data) -> None:
    problem = problem_of(data, delta=0.0)
    _, outer = walked(problem, PLAN.max_epochs)
    assert outer["block"].shape == (3, data.num_nodes)
    for step in range(PLAN.warmup_epochs, PLAN.max_epochs):
        pattern, strengths = problem.drawn(outer, step)
        dense = torch.zeros(data.num_nodes, data.num_nodes)
        dense[pattern.row_of_entry, pattern.column_of_entry] = strengths
        assert torch.equal(dense, dense.mT)
        assert bool((dense.diagonal() > 0).all())
        block = outer["block"][(step - PLAN.warmup_epochs) // PLAN.refit_every]
        assert bool((dense[block.unsqueeze(-1) != block] == 0).all())


def test_the_first_fit_begins_at_random_and_each_from_the_classes(data: Data) -> None:
    problem = problem_of(data)
    weights, outer = walked(problem, PLAN.warmup_epochs)
    fresh = problem.initial_outer()
    assert not torch.equal(outer["phi"].sum(-1), fresh["phi"].sum(-1))
    with torch.no_grad():
        given = problem.scores(weights, fresh).softmax(-1)
    membership = outer["phi"] / outer["phi"].sum(-1, keepdim=True)
    # Three small steps away from what the network says.
    assert float((membership - given).abs().max()) < 0.2


def test_warm_up_is_vanilla_training(data: Data) -> None:
    model = BGCN(**QUICK).fit(data)
    plain = Vanilla(hidden_channels=8, max_epochs=12, random_state=0).fit(data)
    ours, theirs = (
        torch.tensor([record.train_loss for record in each.history_])
        for each in (model, plain)
    )
    warmup = PLAN.warmup_epochs
    torch.testing.assert_close(ours[:warmup], theirs[:warmup])
    assert float((ours[warmup:] - theirs[warmup:]).abs().min()) > 1e-5


def test_all_epochs_are_trained_and_the_last_is_kept(data: Data) -> None:
    model = BGCN(**QUICK, patience=1).fit(data)
    assert model.best_step_ == len(model.history_) == PLAN.max_epochs
    assert len(model.model_.members) == PLAN.max_epochs - PLAN.average_after


def test_compat_decays_the_first_layer_alone(data: Data) -> None:
    right, quirk = problem_of(data), problem_of(data, compat=True)
    weights, outer = right.initial_weights(), right.initial_outer()
    second = right.task.named_weights(weights)["layers.1.weight"]
    less = right.loss(weights, outer, 0) - quirk.loss(weights, outer, 0)
    torch.testing.assert_close(less, 0.05 * second.square().sum())


@pytest.mark.parametrize("step", [3, 5, 11])
def test_a_killed_fit_goes_on(data: Data, step: int, tmp_path: Path) -> None:
    def killer(record: Any, _: Tensor) -> None:
        if record.step == step:
            raise KeyboardInterrupt

    model = BGCN(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            data, checkpoint=Checkpoint(tmp_path, every_seconds=0), watcher=killer
        )
    resumed = BGCN(**QUICK).fit(
        data, checkpoint=Checkpoint(tmp_path, every_seconds=0, resume=True)
    )
    assert_same_fit(resumed, model.fit(data))


@pytest.mark.parametrize(
    "change", [{"average_after": 3}, {"average_after": 12}, {"max_epochs": 8}]
)
def test_a_schedule_without_averaged_epochs(data: Data, change: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="average_after < max_epochs"):
        BGCN(**QUICK | change).fit(data)
