"""GAug-O: what is drawn, what is trained before, and what predicts."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.graph import Propagation
from gsebo.methods.baselines import pairs as dense_memory
from gsebo.methods.baselines.gaug.gaug_o import GAugO, GAugOProblem, warm
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.sparse import CompletePattern, Noise

from .examples import HandWritten, quick, small_graph

BACKBONES = ("gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage")
ALONE: dict[str, Any] = {
    "alpha": 0.5,
    "beta": 0.0,
    "temperature": 0.7,
    "pretrain_edge_epochs": 0,
    "pretrain_weight_epochs": 0,
    "predictor_hidden": 6,
    "predictor_dim": 4,
}


@pytest.fixture(scope="module")
def data() -> Data:
    graph = small_graph(30)
    graph.x = graph.x.double()
    return graph


def problem(data: Data, backbone: str | type = "gcn", **changes: Any) -> GAugOProblem:
    network = NetworkChoices(backbone, 8, 2, 0.0, None)
    prepared = PreparedGraph(data, torch.device("cpu"))
    task = make_task(prepared, network, weight_decay=5e-4, seed=0)
    return GAugOProblem(task, GAugO(**ALONE | changes))


def dense(propagation: Propagation) -> Tensor:
    pattern, values = propagation
    size = pattern.num_rows
    matrix = values.new_zeros(size, size)
    return matrix.index_put((pattern.row_of_entry, pattern.column_of_entry), values)


def gradient_by_outer(made: GAugOProblem) -> dict[str, Tensor]:
    outer = {k: v.requires_grad_() for k, v in made.initial_outer().items()}
    loss = made.loss(made.initial_weights(), outer, 0)
    return dict(zip(outer, torch.autograd.grad(loss, [*outer.values()]), strict=True))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_without_predicted_edges_it_is_the_plain_training(
    data: Data, backbone: str
) -> None:
    options = {"backbone": backbone, "hidden_channels": 4, "dropout": 0.0}
    found = quick(
        "gaug_o",
        **options,
        alpha=0.0,
        beta=0.0,
        pretrain_weight_epochs=0,
    ).fit(data)
    plain = quick("vanilla", **options).fit(data)
    torch.testing.assert_close(found.probability_, plain.probability_)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_drawn_graph_is_one_that_the_network_could_have_been_given(
    data: Data, backbone: str
) -> None:
    """Entries of strength 0 do nothing, in attention neither."""
    as_weights = problem(data, backbone)
    embedding = as_weights.embedding(as_weights.initial_outer())
    noise = Noise(0, 5)
    weighted = as_weights.drawn(embedding, noise)
    assert isinstance(weighted.pattern, CompletePattern)
    as_edges = problem(data, backbone)
    as_edges._differentiable = False
    edges = as_edges.drawn(embedding, noise)
    assert edges.pattern.num_entries < data.num_nodes**2
    torch.testing.assert_close(dense(weighted), dense(edges))
    weights = as_weights.initial_weights()
    torch.testing.assert_close(
        as_weights._on_drawn.logits(weights, *weighted, None),
        as_edges.task.logits(weights, *edges, None),
    )


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_edge_predictor_learns_through_the_network(
    data: Data, backbone: str
) -> None:
    found = gradient_by_outer(problem(data, backbone))
    assert all(bool(each.abs().max() > 0) for each in found.values())


def test_the_edge_predictor_learns_from_reconstruction_as_much_as_beta_says(
    data: Data,
) -> None:
    without, single, double = (
        gradient_by_outer(problem(data, beta=beta)) for beta in (0.0, 1.0, 2.0)
    )
    for name, each in without.items():
        torch.testing.assert_close(2 * (single[name] - each), double[name] - each)
        assert (single[name] - each).abs().max() > 0


@pytest.mark.parametrize("backbone", ["gat", HandWritten])
def test_what_only_reads_where_edges_are_teaches_nothing_about_them(
    data: Data, backbone: str | type
) -> None:
    made = problem(data, backbone, compat=True)
    outer = {k: v.requires_grad_() for k, v in made.initial_outer().items()}
    drawn = made.drawn(made.embedding(outer), Noise(0, 1))
    assert not drawn.strengths.requires_grad
    assert drawn.pattern.num_entries < data.num_nodes**2


def test_directed_edges_are_drawn_both_ways(data: Data) -> None:
    directed = Data(**data.to_dict())
    directed.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    one_way, both_ways = problem(directed, alpha=0.0), problem(data, alpha=0.0)
    z = torch.ones(data.num_nodes, 2, dtype=torch.float64)
    drawn = one_way.drawn(z, Noise(0, 0))
    torch.testing.assert_close(dense(drawn), dense(both_ways.drawn(z, Noise(0, 0))))


def test_the_backbone_is_first_trained_on_the_given_graph(data: Data) -> None:
    options: dict[str, Any] = {"hidden_channels": 8, "random_state": 0}
    plain = Vanilla(**options, max_epochs=7, select_by="last").fit(data)
    network = NetworkChoices("gcn", 8, 2, 0.5, None)
    prepared = PreparedGraph(data, torch.device("cpu"))
    task = make_task(prepared, network, weight_decay=5e-4, seed=0)
    method = GAugO(**ALONE | {"pretrain_weight_epochs": 7})
    found = GAugOProblem(task, method).initial_weights()
    for name, weight in task.named_weights(found).items():
        expected = dict(plain.model_.backbone.named_parameters())[name]
        torch.testing.assert_close(weight, expected)


def test_the_edge_predictor_is_first_trained_to_reconstruct(data: Data) -> None:
    losses = []
    for steps in (0, 10, 40):
        made = problem(data, pretrain_edge_epochs=steps)
        losses.append(float(made._reconstruction(made.embedding(made.initial_outer()))))
    assert losses[0] > losses[1] > losses[2]


def test_no_step_before_the_joint_training_can_be_selected(data: Data) -> None:
    model = quick("gaug_o", pretrain_weight_epochs=50, pretrain_edge_epochs=50)
    model.fit(data)
    assert len(model.history_) == 4
    assert model.history_[-1].inner_steps == 12


@pytest.mark.parametrize("backbone", BACKBONES)
def test_predictions_are_made_on_the_given_graph(data: Data, backbone: str) -> None:
    model = quick("gaug_o", backbone=backbone).fit(data)
    assert torch.equal(model.strength_, model.initial_strength_)
    assert model.new_edge_strength_.numel() == 0
    other = small_graph(25, seed=4)
    network = model.model_.backbone
    prepared = PreparedGraph(other, torch.device("cpu"))
    pattern = prepared.topology(self_loops=network.self_loops).pattern
    with torch.no_grad():
        logits = network(other.x.double(), pattern, None, None)
    other.x = other.x.double()
    torch.testing.assert_close(model.predict_proba(other), logits.softmax(-1))


@pytest.mark.parametrize("width", [0.5, 3.0, 10.0])
def test_the_warm_up_is_a_sigmoid_between_0_and_1(width: float) -> None:
    sigmoid = torch.linspace(-width, width, 50, dtype=torch.float64).sigmoid()
    expected = (sigmoid - sigmoid[0]) / (sigmoid[-1] - sigmoid[0])
    found = [warm(step, 50, width) for step in range(50)]
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected)
    assert warm(0, 1, width) == 0


def test_compat_ignores_the_warm_up(data: Data) -> None:
    def fitted(**options: Any) -> Tensor:
        return quick("gaug_o", **options).fit(data).probability_

    constant = fitted(warmup=0.0)
    assert not torch.equal(fitted(warmup=3.0), constant)
    assert torch.equal(fitted(warmup=3.0, compat=True), constant)


def test_a_graph_that_does_not_fit_is_refused_first(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_memory, "free_memory", lambda device: 200_000)
    GAugO(max_epochs=1, pretrain_edge_epochs=0).fit(data)
    with pytest.raises(InvalidInput, match="gaug_o weighs all pairs of 30 nodes"):
        GAugO("gat", max_epochs=1).fit(data)
