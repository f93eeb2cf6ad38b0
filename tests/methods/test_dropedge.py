"""DropEdge: trained on parts of the graph, judged on all of it."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from gsebo import InvalidInput
from gsebo.methods.baselines.dropedge import DropEdge, DropEdgeProblem
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.sparse import Noise, SparseFeatures

from .examples import small_graph

BACKBONES = ("gcn", "gat", "sage", "sage-gcn", "jk", "mlp")
RENORMALISED = {"backbone": "gat", "backbone_options": {"renormalise": True}}


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(40)


def problem_of(data: Data, rate: float = 0.4, **options: object) -> DropEdgeProblem:
    """The problem that a fit would train, in double precision."""
    model = DropEdge(hidden_channels=4, drop_rate=rate, random_state=3, **options)
    exact = data.clone()
    exact.x = data.x.double()
    prepared = PreparedGraph(exact, torch.device("cpu"))
    task = make_task(prepared, model.network(), weight_decay=0.01, seed=3)
    return DropEdgeProblem(task, model)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_step_is_vanilla_training_on_the_kept_pairs(
    data: Data, backbone: str
) -> None:
    """Both directions of exactly the stated share of pairs, and all self-loops."""
    problem = problem_of(data, backbone=backbone)
    task, step = problem.task, 7
    pattern = problem.left_over(Noise(3, step)).pattern
    target, source = pattern.row_of_entry, pattern.column_of_entry
    edge = target != source
    kept = set(zip(source[edge].tolist(), target[edge].tolist(), strict=True))
    given = set(map(tuple, task.graph.graph.edge_index.T.tolist()))
    assert kept < given
    assert kept == {(j, i) for i, j in kept}
    assert len(kept) // 2 == int(0.6 * len(given) / 2)
    assert int((~edge).sum()) == task.graph.num_loops

    smaller = data.clone()
    smaller.edge_index = torch.tensor(sorted(kept)).T
    alone = problem_of(smaller, rate=0.0, backbone=backbone)
    weights = problem.initial_weights()
    torch.testing.assert_close(
        problem.loss(weights, {}, step), alone.loss(weights, {}, step)
    )


def test_directed_keeps_the_share_of_single_edges(data: Data) -> None:
    problem = problem_of(data, directed=True)
    graph = problem.task.graph
    pattern = problem.left_over(Noise(3, 0)).pattern
    edge = pattern.row_of_entry != pattern.column_of_entry
    assert int(edge.sum()) == int(0.6 * graph.num_edges)
    assert int((~edge).sum()) == graph.num_nodes
    ends = (pattern.column_of_entry[edge], pattern.row_of_entry[edge])
    kept = set(zip(*(end.tolist() for end in ends), strict=True))
    assert kept != {(j, i) for i, j in kept}


@pytest.mark.parametrize("options", [{"backbone": b} for b in BACKBONES if b != "gat"])
def test_layers_draw_for_themselves(data: Data, options: dict[str, object]) -> None:
    """Each layer has the strengths of the graph that its own draw has left."""
    problem = problem_of(data, per_layer=True, **options)
    strengths = problem.left_over(Noise(3, 7)).strengths
    assert strengths.shape[0] == problem.task.backbone.num_propagations
    for layer, values in enumerate(strengths):
        kept = problem._drop.kept_entries(Noise(3, 7), 1000 + layer)
        expected = torch.zeros_like(values)
        expected[kept] = problem._removed(kept).strengths
        torch.testing.assert_close(values, expected)
    assert not torch.equal(strengths[0], strengths[1])


def test_attention_per_layer_needs_to_be_normalised_again(data: Data) -> None:
    DropEdge(**RENORMALISED, per_layer=True, max_epochs=3).fit(data)
    for backbone in ("gat", GCN(8, 4, 2, out_channels=2)):
        with pytest.raises(InvalidInput, match="per_layer=True given with"):
            DropEdge(backbone, per_layer=True).fit(data)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("per_layer", [False, True])
def test_nothing_dropped_is_vanilla(data: Data, backbone: str, per_layer: bool) -> None:
    options = {"backbone": backbone, "max_epochs": 20, "random_state": 5}
    options |= {"hidden_channels": 8}
    vanilla = Vanilla(**options).fit(data)
    model = DropEdge(**options, drop_rate=0, per_layer=per_layer).fit(data)
    torch.testing.assert_close(model.probability_, vanilla.probability_)
    assert torch.equal(model.strength_, vanilla.strength_)
    assert model.best_step_ == vanilla.best_step_


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_predictions_use_the_whole_graph_and_any_other(
    data: Data, backbone: str
) -> None:
    model = DropEdge(backbone, drop_rate=0.9, max_epochs=5, random_state=0).fit(data)
    task = problem_of(data, backbone=backbone).task
    network, features = model.model_.backbone, data.x
    whole = task.graph.pattern
    expected = network(features, whole, network.initial_strength(whole), None)
    torch.testing.assert_close(model.probability_, expected.softmax(-1).detach())
    assert torch.equal(model.strength_, model.initial_strength_)
    assert torch.equal(model.predict_proba(data), model.probability_)
    other = small_graph(30, seed=9)
    assert model.predict_proba(other).shape == (30, 2)


def test_a_pyg_model_is_trained_on_the_rest(data: Data) -> None:
    model = GCN(8, 4, 2, out_channels=2, dropout=0.0)
    problem = problem_of(data, backbone=model)
    noise = Noise(3, 1)
    part = problem.left_over(noise).pattern
    edge = part.row_of_entry != part.column_of_entry
    edges = torch.stack([part.column_of_entry[edge], part.row_of_entry[edge]])
    features = problem.task.features
    x = features.to_dense() if isinstance(features, SparseFeatures) else features
    network = problem.task.backbone.module
    logits = problem.task.logits(problem.initial_weights(), part, None, None)
    torch.testing.assert_close(logits, network(x, edges))
    gated = problem.task.logits(
        problem.initial_weights(), *problem.left_over(noise), None
    )
    torch.testing.assert_close(gated, logits)
