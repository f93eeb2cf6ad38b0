"""LDS: drawn graphs, the derivative straight through them, and episodes."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from gsebo import Checkpoint, InvalidInput
from gsebo.bilevel import Reverse, Tree, adam, begin
from gsebo.bilevel.check import check_problem
from gsebo.methods.baselines import pairs as dense_memory
from gsebo.methods.baselines.lds import LDS, BernoulliEdges, LDSProblem
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.sparse import Noise

from .examples import assert_same_fit, quick, small_graph, with_fields

NUM_NODES = 14
LOWER = tuple(torch.tril_indices(NUM_NODES, NUM_NODES, -1))
STEPS = 3


@pytest.fixture(scope="module")
def data() -> Data:
    graph = small_graph(NUM_NODES, num_features=4)
    return with_fields(graph, x=graph.x.double())


def problem_of(data: Data, **changes: Any) -> LDSProblem:
    model = LDS(hidden_channels=3, test_samples=3, **changes)
    prepared = PreparedGraph(data, torch.device("cpu"))
    task = make_task(prepared, model.network(), weight_decay=0.01, seed=3)
    outer_nodes = data.val_mask.nonzero().squeeze(-1)
    return LDSProblem(task, model, lambda seed: task, outer_nodes)


def undecided() -> Tree:
    """Probabilities that leave every edge open."""
    generator = torch.Generator().manual_seed(1)
    chances = torch.rand(len(LOWER[0]), dtype=torch.float64, generator=generator)
    return {"probability": 0.2 + 0.6 * chances}


class Chunk:
    """The losses of some inner steps as the engines want them."""

    def __init__(self, problem: LDSProblem) -> None:
        self.inner_loss = problem.loss
        self.outer_loss = lambda *point: problem.outer_loss(*point, STEPS)


def test_losses_and_their_straight_through_gradient_against_a_dense_gcn(
    data: Data,
) -> None:
    problem, outer = problem_of(data, dropout=0.0), undecided()
    chances = outer["probability"].requires_grad_()
    weights = problem.initial_weights()
    first, first_bias, second, second_bias = problem.task.named_weights(
        weights
    ).values()
    nodes = {"train": problem.inner_nodes, "val": data.val_mask.nonzero().squeeze(-1)}
    penalty = 0.005 * weights["weights"].square().sum()
    graphs = BernoulliEdges(NUM_NODES, "cpu")
    found = {
        "train": problem.loss(weights, outer, 7),
        "val": problem.outer_loss(weights, outer, 7),
    }
    for kind, site in (("train", 1000), ("val", 1001)):
        drawn = graphs.sample(chances.detach(), Noise(3, 7), site).requires_grad_()
        root = drawn.sum(1).rsqrt()
        matrix = root[:, None] * drawn * root
        hidden = torch.relu(matrix @ (data.x @ first) + first_bias)
        logits = matrix @ (hidden @ second) + second_bias
        loss = cross_entropy(logits[nodes[kind]], data.y[nodes[kind]])
        expected = loss + (penalty if kind == "train" else 0)
        torch.testing.assert_close(found[kind], expected)
        (by_entry,) = torch.autograd.grad(loss, drawn)
        (by_chance,) = torch.autograd.grad(found[kind], chances)
        torch.testing.assert_close(by_chance, (by_entry + by_entry.T)[LOWER])


def test_the_hypergradient_is_that_of_the_relaxed_graphs(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen draws that move with the probabilities: there finite differences exist."""
    problem, outer = problem_of(data), undecided()
    weights, optimizer = problem.initial_weights(), adam(0.05)
    start = begin(optimizer, weights)
    straight = Reverse().run(Chunk(problem), optimizer, start, outer, STEPS)
    draw, middle = BernoulliEdges.sample, outer["probability"]

    def relaxed(self: Any, chances: Tensor, noise: Noise, site: int) -> Tensor:
        moved = torch.zeros(NUM_NODES, NUM_NODES, dtype=torch.float64)
        moved = moved.index_put(LOWER, chances - middle)
        return draw(self, middle, noise, site) + moved + moved.T

    monkeypatch.setattr(BernoulliEdges, "sample", relaxed)
    check_problem(
        Chunk(problem), optimizer, weights, outer, STEPS, directions=2
    ).raise_if_worse_than(1e-6)
    found = Reverse().run(Chunk(problem), optimizer, start, outer, STEPS)
    torch.testing.assert_close(straight.gradient, found.gradient)
    assert float(straight.gradient["probability"].abs().min()) > 0


def test_projection_is_onto_the_box(data: Data) -> None:
    moved = {"probability": torch.tensor([-0.5, 0.0, 0.3, 1.0, 1.7])}
    expected = torch.tensor([0.0, 0.0, 0.3, 1.0, 1.0])
    settled = problem_of(data).settle({}, moved, 0)
    assert torch.equal(settled["probability"], expected)


def test_outer_steps_are_projected_and_get_shorter(data: Data) -> None:
    options = {"inner_steps": STEPS, "max_inner_steps": STEPS, "patience": 9}
    model = LDS(outer_lr=2.0, outer_decay=3.0, random_state=0, **options)
    trained, engine = [], Reverse.run

    def recorded(*arguments: Any) -> Any:
        trained.append((arguments[4], engine(*arguments)))
        return trained[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reverse, "run", recorded)
        model.set_params(max_episodes=3).fit(data)
    chances = [outer["probability"] for outer, _ in trained]
    assert set(chances[0].unique().tolist()) == {0.0, 1.0}
    for count, (outer, result) in enumerate(trained[:-1]):
        step = 2.0 / (1 + 3.0 * count) * result.gradient["probability"]
        expected = (outer["probability"] - step).clamp(0, 1)
        torch.testing.assert_close(chances[count + 1], expected)
        assert not torch.equal(chances[count + 1], chances[count])


def test_every_episode_begins_with_weights_of_its_own(data: Data) -> None:
    options = {"inner_lr": 0.0, "inner_steps": 2, "max_inner_steps": 2}
    model = LDS(hidden_channels=4, max_episodes=3, **options, random_state=0)
    losses = [record.train_loss for record in model.fit(data).history_]
    assert len(set(losses)) == 3
    again = LDS(**model.get_params()).fit(data)
    assert [record.train_loss for record in again.history_] == losses


def test_an_episode_ends_when_the_training_loss_stops_falling(data: Data) -> None:
    still = {"inner_lr": 0.0, "outer_lr": 0.0, "dropout": 0.0, "max_episodes": 2}
    model = LDS(inner_steps=2, inner_patience=3, max_inner_steps=99, **still)
    assert [record.inner_steps for record in model.fit(data).history_] == [8, 16]
    model = LDS(inner_steps=4, inner_patience=99, max_inner_steps=10, **still)
    assert [record.inner_steps for record in model.fit(data).history_] == [10, 20]


def test_predictions_are_the_mean_over_drawn_graphs(data: Data) -> None:
    problem, outer = problem_of(data), undecided()
    weights, task = problem.initial_weights(), problem.task
    graphs = BernoulliEdges(NUM_NODES, "cpu")
    total: Any = 0
    for number in range(3):
        drawn = graphs.sample(outer["probability"], Noise(3, number), 1002)
        root = drawn.sum(1).rsqrt()
        pattern = problem.members(weights, outer)[number].propagation.pattern
        strengths = (root[:, None] * drawn * root)[
            pattern.row_of_entry, pattern.column_of_entry
        ]
        total = total + task.logits(weights, pattern, strengths, None).softmax(-1) / 3
    torch.testing.assert_close(problem.scores(weights, outer).exp(), total)
    # Certain edges are the given graph.
    certain = problem.scores(weights, problem.initial_outer())
    vanilla = task.logits(weights, task.graph.pattern, None, None)
    torch.testing.assert_close(certain.softmax(-1), vanilla.softmax(-1))


def test_the_prior_of_nearest_neighbors_leaves_the_graph_out(data: Data) -> None:
    model = quick("lds", prior="knn", num_neighbors=2, outer_lr=0.0).fit(data)
    unit = torch.nn.functional.normalize(data.x)
    nearest = (unit @ unit.T).fill_diagonal_(-2).topk(2).indices
    pairs = {
        tuple(sorted((node, other)))
        for node, row in enumerate(nearest.tolist())
        for other in row
    }
    used = model.new_edge_index_.T.tolist()
    kept = data.edge_index.T[model.strength_ > 0].tolist()
    assert {tuple(sorted(edge)) for edge in used + kept} == pairs


def test_an_interrupted_fit_goes_on_with_the_next_episode(data: Data, tmp_path) -> None:
    model = quick("lds", max_episodes=4, patience=4)
    whole = model.fit(data).history_

    def interrupt(record: Any, logits: Tensor) -> None:
        if record.step == 3:
            raise KeyboardInterrupt

    resumed = LDS(**model.get_params())
    with pytest.raises(KeyboardInterrupt):
        saved = Checkpoint(tmp_path, every_seconds=0)
        resumed.fit(data, checkpoint=saved, watcher=interrupt)
    resumed.fit(data, checkpoint=Checkpoint(tmp_path, resume=True))
    assert_same_fit(resumed, model)
    losses = [record.val_loss for record in resumed.history_]
    assert losses == [record.val_loss for record in whole]


@pytest.mark.parametrize("name", ["lds", "prognn"])
def test_too_little_memory_is_said_before_it_is_used_up(
    data: Data, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_memory, "free_memory", lambda device: 20_000)
    with pytest.raises(InvalidInput, match=f"{name}.*14 nodes"):
        quick(name).fit(data)
