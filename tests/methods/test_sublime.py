"""What SUBLIME contrasts, against the same with dense matrices."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy
from torch_geometric.data import Data

from gsebo.errors import InvalidInput
from gsebo.graph import Propagation
from gsebo.methods.baselines.sublime import (
    SUBLIME,
    Contrast,
    SUBLIMEProblem,
    contrast_loss,
    masked_columns,
)
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.sparse import Noise, make_features
from gsebo.training import Task

from .examples import quick, small_graph, with_fields

NODES = 13
SMALL = {"num_neighbors": 3, "contrast_hidden": 6, "contrast_channels": 4}
STILL = {
    "contrast_dropout": 0.0,
    "contrast_edge_dropout": 0.0,
    "mask_anchor": 0.0,
    "mask_learned": 0.0,
    "edge_dropout": 0.0,
}
LEARNERS = ["fp", "full", "mlp", "mlp_d", "gnn"]


@pytest.fixture(scope="module")
def data() -> Data:
    data = small_graph(NODES)
    return with_fields(data, x=data.x.double())


def problem_of(data: Data, **options: Any) -> SUBLIMEProblem:
    prepared = PreparedGraph(data, torch.device("cpu"))
    network = NetworkChoices("gcn", 3, 2, 0.0, None)
    task = make_task(prepared, network, weight_decay=0.1, seed=4)
    return SUBLIMEProblem(task, SUBLIME(**SMALL | options))


def dense(graph: Propagation) -> Tensor:
    pattern, strengths = graph
    matrix = strengths.new_zeros(NODES, NODES)
    place = pattern.row_of_entry, pattern.column_of_entry
    return matrix.index_put(place, strengths, accumulate=True)


def naive_contrast(u: Tensor, v: Tensor, temperature: float) -> Tensor:
    """The formula, number by number."""
    near = cosine_similarity(u[:, None], v[None], dim=-1) / temperature
    own, total = near.diag(), 0
    for i in range(len(u)):
        others = [j for j in range(len(u)) if j != i]
        total += near[i, others].exp().sum().log() + near[others, i].exp().sum().log()
        total -= 2 * own[i]
    return total / (2 * len(u))


@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 7), block=st.integers(1, 60), seed=st.integers(0, 99))
def test_the_contrast_is_that_of_the_formula(size: int, block: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, size, 3, generator=draw, dtype=torch.float64)
    u.requires_grad_()
    v.requires_grad_()
    found = contrast_loss(u, v, 0.4, block=block)
    expected = naive_contrast(u, v, 0.4)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, (u, v)),
        torch.autograd.grad(expected, (u, v)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_gradients_of_the_contrast_are_those_of_finite_differences() -> None:
    draw = torch.Generator().manual_seed(1)
    u, v = torch.randn(2, 5, 3, generator=draw, dtype=torch.float64)
    for block in (5, 1000):
        assert torch.autograd.gradcheck(
            lambda u, v, block=block: contrast_loss(u, v, 0.5, block=block),
            (u.requires_grad_(), v.requires_grad_()),
        )


def test_equal_views_are_better_than_exchanged_ones() -> None:
    u = torch.eye(6)
    assert contrast_loss(u, u, 0.2) < contrast_loss(u, u.roll(1, 0), 0.2)
    assert contrast_loss(u[:1], u[:1], 0.2) == 0


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_step_is_that_of_dense_matrices(data: Data, learner: str) -> None:
    problem = problem_of(data, learner=learner, activation="tanh", tau=0.7, **STILL)
    contrast = Contrast(problem)
    parameters = {k: v.requires_grad_() for k, v in contrast.initial().items()}
    given, x = dense(problem.given), problem.task.features
    # At the start every learner finds those that have similar features.
    seen = x
    if learner == "gnn":
        seen = given @ torch.tanh(given @ x)
    elif learner not in ("fp", "full"):
        seen = torch.tanh(x)
    near = cosine_similarity(seen[:, None], seen[None], dim=-1)
    others = near.clone().fill_diagonal_(-torch.inf).topk(3).indices
    taken = torch.eye(NODES, dtype=torch.float64).scatter(1, others, 1.0)
    raw = near.relu() * taken
    if learner in ("fp", "full"):
        joined = (given > 0) | (learner == "full")
        raw = taken.maximum(joined * torch.exp(torch.tensor(-6.0)).double())
    graph = (raw + raw.mT) / 2
    scale = graph.sum(1).rsqrt()
    graph = scale[:, None] * graph * scale

    def view(on: Tensor) -> Tensor:
        hidden = on @ x @ parameters["network.layers.0.weight"]
        hidden = (hidden + parameters["network.layers.0.bias"]).relu()
        h = on @ hidden @ parameters["network.layers.1.weight"]
        h = h + parameters["network.layers.1.bias"]
        h = (h @ parameters["first.weight"].mT + parameters["first.bias"]).relu()
        return h @ parameters["second.weight"].mT + parameters["second.bias"]

    loss = contrast(parameters, 0)
    torch.testing.assert_close(loss, naive_contrast(view(given), view(graph), 0.2))
    torch.testing.assert_close(dense(contrast.anchor), 0.7 * given + 0.3 * graph)
    second = contrast(parameters, 1)
    mixed = 0.7 * given + 0.3 * graph
    torch.testing.assert_close(second, naive_contrast(view(mixed), view(graph), 0.2))
    (first, *_) = contrast.learner(parameters).values()
    assert torch.autograd.grad(loss, first)[0].abs().max() > 0


@pytest.mark.parametrize("learner", LEARNERS)
def test_gradients_are_those_of_finite_differences(data: Data, learner: str) -> None:
    problem = problem_of(data, learner=learner, activation="tanh")
    start = Contrast(problem).initial()
    draw = torch.Generator().manual_seed(5)
    leaves = [
        (v + 0.1 * torch.randn(v.shape, generator=draw).to(v)).requires_grad_()
        for v in start.values()
    ]

    def loss(*leaves: Tensor) -> Tensor:
        # A fresh one for each: the anchor moves with every step.
        return Contrast(problem)(dict(zip(start, leaves, strict=True)), 0)

    assert torch.autograd.gradcheck(
        loss, tuple(leaves), eps=1e-7, atol=1e-5, fast_mode=True
    )


def test_an_anchor_that_stays_is_the_given_graph(data: Data) -> None:
    contrast = Contrast(problem_of(data, tau=1.0))
    contrast(contrast.initial(), 0)
    assert contrast.anchor is contrast._problem.given


def test_contrast_lowers_its_loss_and_reads_no_label(data: Data) -> None:
    options = {**STILL, "tau": 1.0, "contrast_lr": 0.01}
    before = problem_of(data, **options)
    contrast = Contrast(before)
    first = contrast(contrast.initial(), 0)
    problem = problem_of(data, contrast_epochs=40, **options)
    outer = problem.initial_outer()
    assert outer.keys() == contrast.learner(contrast.initial()).keys()
    after = Contrast(problem)
    assert after({**after.initial(), **outer}, 0) < first
    unlabelled = with_fields(data, y=data.y.roll(1))
    other = problem_of(unlabelled, contrast_epochs=40, **options).initial_outer()
    assert all(torch.equal(outer[name], other[name]) for name in outer)


def test_the_classifier_is_trained_on_the_learned_graph(data: Data) -> None:
    problem = problem_of(data, contrast_epochs=2, **STILL)
    task: Task = problem.task
    weights, outer = problem.initial_weights(), problem.initial_outer()
    (member,) = problem.members(weights, outer)
    graph, named = dense(member.propagation), task.named_weights(weights)
    hidden = graph @ task.features @ named["layers.0.weight"] + named["layers.0.bias"]
    logits = graph @ hidden.relu() @ named["layers.1.weight"] + named["layers.1.bias"]
    nodes = task.inner_nodes
    expected = cross_entropy(logits[nodes], task.labels[nodes]) + task.penalty(weights)
    torch.testing.assert_close(problem.loss(weights, outer, 0), expected)


@pytest.mark.parametrize("rate", [0.0, 0.29, 0.6])
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_share_of_the_columns_is_masked(rate: float, density: float) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.rand(40, 100, generator=draw) + 0.1
    x = x * (torch.rand(40, 100, generator=draw) < density)
    features = make_features(x, torch.float64, "cpu")
    assert isinstance(features, Tensor) == (density == 1.0)
    found = masked_columns(features, rate, Noise(1, 2), 3)
    found = found if isinstance(found, Tensor) else found.to_dense()
    kept = (found == x.double()).all(0)
    assert int((~kept).sum()) == round(100 * rate)
    assert not found[:, ~kept].any()


def test_graphs_without_edges_and_nodes_without_features(data: Data) -> None:
    x = data.x.clone()
    x[2] = 0
    empty = with_fields(data, edge_index=data.edge_index[:, :0], x=x)
    for learner in LEARNERS:
        problem = problem_of(empty, learner=learner, contrast_epochs=3)
        weights, outer = problem.initial_weights(), problem.initial_outer()
        assert all(leaf.isfinite().all() for leaf in outer.values())
        assert problem.scores(weights, outer).isfinite().all()


def test_neighbors_may_be_searched_less_often(data: Data) -> None:
    asked = []
    problem = problem_of(data, learner="mlp_d", search_every=3, contrast_epochs=7)
    search = problem.generator.search
    problem.generator.search = lambda tree: asked.append(1) or search(tree)
    problem.initial_outer()
    assert len(asked) == 3


@pytest.mark.parametrize(("epochs", "graphs"), [(7, 3), (6, 2), (0, 1)])
def test_graphs_along_the_contrast_are_trained_on(
    data: Data, epochs: int, graphs: int
) -> None:
    problem = problem_of(data, contrast_epochs=epochs, train_every=3)
    found = problem.learners()
    assert len(found) == graphs
    # Each is that of a contrast which ends there.
    for number, learner in enumerate(found, start=1):
        end = min(3 * number, epochs)
        alone = problem_of(data, contrast_epochs=end).initial_outer()
        assert all(torch.equal(learner[name], alone[name]) for name in alone)


def test_the_best_graph_on_the_validation_nodes_is_kept() -> None:
    data = small_graph()
    options = {**SMALL, "contrast_lr": 0.5, "max_epochs": 12, "random_state": 3}
    reached = []
    for epochs in (2, 4, 6, 7):
        alone = SUBLIME(**options, contrast_epochs=epochs, train_every=99).fit(data)
        best = max(alone.history_, key=lambda record: record.val_accuracy)
        reached.append(best.val_accuracy)
    model = SUBLIME(**options, contrast_epochs=7, train_every=2).fit(data)
    kept = max(record.val_accuracy for record in model.history_)
    assert kept == max(reached) > min(reached)


def test_a_learner_that_does_not_fit_is_refused(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsebo.memory.free_memory", lambda _: 1000)
    with pytest.raises(InvalidInput, match="learner='mlp_d' on 13 nodes with 8 feat"):
        problem_of(data, learner="mlp_d")
    problem_of(data, learner="fp")
    monkeypatch.undo()
    monkeypatch.setattr("gsebo.methods.baselines.pairs.free_memory", lambda _: 1000)
    with pytest.raises(InvalidInput, match="sublime weighs all pairs of 60 nodes"):
        quick("sublime", learner="full").fit(small_graph())


def test_the_learned_graph_predicts() -> None:
    for learner in LEARNERS:
        model = quick("sublime", learner=learner).fit(small_graph())
        assert model.new_edge_index_.shape[1] > 0
        # Only parameters for single edges keep what was given and is not similar.
        kept = learner in ("fp", "full")
        assert bool((model.strength_ == 0).any()) != kept
