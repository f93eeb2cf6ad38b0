"""Edges of a fit as a table and as a graph for other tools."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from examples.learned_strengths_in_your_model import train
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import gsebo
from gsebo import Graph, InvalidInput
from gsebo.data.formats.folder import write_folder
from gsebo.methods import METHODS
from methods.examples import fitted, small_graph


def test_one_row_per_edge_in_the_order_of_the_user() -> None:
    model, graph = fitted("gsebo"), small_graph()
    frame = model.edges_frame()
    assert frame[["source", "target"]].to_numpy().T.tolist() == (
        graph.edge_index.tolist()
    )
    np.testing.assert_allclose(frame["strength"], model.strength_)
    np.testing.assert_allclose(frame["start"], model.initial_strength_)
    np.testing.assert_allclose(frame["ratio"] * frame["start"], frame["strength"])
    source, target = graph.edge_index
    p = model.probability_.double()
    np.testing.assert_allclose(frame["agreement"], (p[source] * p[target]).sum(1))
    assert frame["weight"].isna().all()
    assert frame["source_class"].tolist() == graph.y[source].tolist()


def test_both_directions_in_one_row() -> None:
    model = fitted("gsebo")
    each, merged = model.edges_frame(), model.edges_frame(undirected=True)
    assert 2 * len(merged) == len(each)
    pairs = each.assign(
        low=each[["source", "target"]].min(axis=1),
        high=each[["source", "target"]].max(axis=1),
    )
    means = pairs.groupby(["low", "high"])["strength"].mean()
    ends = np.sort(merged[["source", "target"]].to_numpy(), axis=1)
    wanted = [means[tuple(pair)] for pair in ends]
    np.testing.assert_allclose(merged["strength"], wanted)


def test_layers_and_names_of_the_user() -> None:
    graph = small_graph(num_classes=3)
    graph.node_id = np.array([f"node {number}" for number in range(60)])
    graph.meta = {"classes": ["a", "b", "c"]}
    graph.y = torch.where(torch.arange(60) == 59, -1, graph.y)
    graph.test_mask[59] = False
    graph.train_mask[59] = graph.val_mask[59] = False
    model = gsebo.GSEBO(per_layer=True, max_outer_steps=3, random_state=0)
    frame = model.fit(graph).edges_frame()
    layers = frame[["strength_0", "strength_1"]].to_numpy()
    np.testing.assert_allclose(layers.T, model.strength_)
    np.testing.assert_allclose(layers.mean(1), frame["strength"])
    assert frame["source"].tolist() == [
        f"node {number}" for number in graph.edge_index[0].tolist()
    ]
    named = dict(zip(frame["source"], frame["source_class"], strict=True))
    assert set(named.values()) <= {"a", "b", "c"}
    assert named["node 59"] == "abc"[int(model.transduction_[59])]


def test_models_of_folders_are_refused(tmp_path: Path) -> None:
    folder = write_folder(small_graph(), tmp_path / "g")
    model = gsebo.GSEBO(batch_size=9, max_outer_steps=1, random_state=0).fit(folder)
    for ask in (model.edges_frame, model.clean_graph, model.to_module):
        with pytest.raises(InvalidInput, match="graph folder"):
            ask()


@cache
def amortised() -> gsebo.Amortised:
    method = gsebo.Amortised(
        num_folds=2, max_outer_steps=15, refit_epochs=40, random_state=0, device="cpu"
    )
    return method.fit(planted())


def planted() -> Graph:
    clean = gsebo.generate_graph(
        200, average_degree=6.0, num_features=8, homophily=0.95, seed=0
    )
    return gsebo.add_inter_class_edges(clean, 150, seed=0)


def test_gcn_of_pyg_propagates_with_the_strengths_of_the_fit() -> None:
    model, graph = amortised(), planted()
    cleaned = model.clean_graph()
    assert isinstance(cleaned, Data) and torch.equal(cleaned.x, graph.x)
    assert torch.equal(cleaned.edge_index, graph.edge_index)
    _, strength = gcn_norm(cleaned.edge_index, cleaned.edge_weight, 200)
    torch.testing.assert_close(strength[: graph.num_edges], model.strength_)
    assert model.loop_strength_ is not None
    torch.testing.assert_close(strength[graph.num_edges :], model.loop_strength_)


def test_weights_of_the_user_are_multiplied_by_what_was_learned(tmp_path: Path) -> None:
    graph = small_graph()
    draw = torch.Generator().manual_seed(0)
    more = torch.cat([graph.edge_index[:, :3], torch.tensor([[7], [7]])], dim=1)
    graph.edge_index = torch.cat([graph.edge_index, more], dim=1)
    graph.edge_weight = torch.rand(graph.num_edges, generator=draw) + 0.5
    quick = {"max_outer_steps": 2, "random_state": 0}
    model = gsebo.Amortised(num_folds=2, refit_epochs=5, **quick).fit(graph)
    model.save(tmp_path / "m")
    for each in (model, gsebo.load_model(tmp_path / "m")):
        cleaned = each.clean_graph()
        edges, strength = gcn_norm(cleaned.edge_index, cleaned.edge_weight, 60)
        found = dict(
            zip(map(tuple, edges.t().tolist()), strength.tolist(), strict=True)
        )
        ends = map(tuple, graph.edge_index.t().tolist())
        for edge, wanted in zip(ends, model.strength_.tolist(), strict=True):
            assert found[edge] == pytest.approx(wanted, abs=1e-6)
    # Where nothing is learned, the weights come back; edges that are there twice add.
    plain = METHODS["vanilla"].make(max_epochs=1, random_state=0).fit(graph)
    given = graph.edge_weight[:-4].clone()
    given[:3] += graph.edge_weight[-4:-1]
    torch.testing.assert_close(plain.clean_graph().edge_weight[:-1], given)


def test_an_edge_twice_and_a_loop() -> None:
    graph = small_graph()
    more = torch.cat([graph.edge_index[:, :3], torch.tensor([[7], [7]])], dim=1)
    graph.edge_index = torch.cat([graph.edge_index, more], dim=1)
    model = gsebo.Amortised(
        num_folds=2, max_outer_steps=2, refit_epochs=5, random_state=0
    ).fit(graph)
    cleaned = model.clean_graph()
    assert cleaned.num_edges == graph.num_edges - 3
    edges, strength = gcn_norm(cleaned.edge_index, cleaned.edge_weight, 60)
    found = dict(zip(map(tuple, edges.t().tolist()), strength.tolist(), strict=True))
    for edge, wanted in zip(
        graph.edge_index.t().tolist(), model.strength_.tolist(), strict=True
    ):
        assert found[tuple(edge)] == pytest.approx(wanted, abs=1e-6)


def one_layer(data: Data, **options: bool) -> Tensor:
    torch.manual_seed(0)
    return GCNConv(data.num_features, 3, **options)(
        data.x, data.edge_index, data.edge_weight
    )


def test_strengths_in_place_of_normalisation() -> None:
    model, graph = fitted("gsebo"), small_graph()
    cleaned = model.clean_graph(edge_weight="strength")
    out = one_layer(cleaned, normalize=False)
    torch.manual_seed(0)
    conv = GCNConv(graph.num_features, 3)
    dense = torch.zeros(60, 60)
    dense[graph.edge_index[1], graph.edge_index[0]] = model.strength_
    assert model.loop_strength_ is not None
    wanted = (dense + model.loop_strength_.diag()) @ conv.lin(graph.x)
    torch.testing.assert_close(out, wanted)
    # Where nothing but strengths was learned, weights say how those have changed.
    ratio = model.strength_ / model.initial_strength_
    torch.testing.assert_close(model.clean_graph().edge_weight, ratio)


@pytest.mark.parametrize("by", ["weight", "agreement", "ratio", "strength"])
def test_edges_below_a_threshold_go_in_pairs(by: str) -> None:
    model = amortised()
    merged = model.edges_frame(undirected=True)
    threshold = float(merged[by].median())
    cleaned = model.clean_graph(threshold=threshold, by=by)
    assert cleaned.num_edges == 2 * int((merged[by] >= threshold).sum())
    assert cleaned.is_undirected()
    assert cleaned.num_nodes == 200
    assert cleaned.edge_weight.shape == cleaned.edge_strength.shape


def test_what_cannot_be_asked() -> None:
    model = fitted("gsebo")
    with pytest.raises(InvalidInput, match="colour"):
        model.clean_graph(by="colour")
    with pytest.raises(InvalidInput, match="edge_weight='x'"):
        model.clean_graph(edge_weight="x")
    with pytest.raises(InvalidInput, match="threshold='high'"):
        model.clean_graph(threshold="high")


def test_false_edges_have_a_low_agreement() -> None:
    there = set(
        map(
            tuple,
            gsebo.generate_graph(
                200, average_degree=6.0, num_features=8, homophily=0.95, seed=0
            )
            .edge_index.t()
            .tolist(),
        )
    )
    frame = amortised().edges_frame()
    false = [
        pair not in there for pair in zip(frame["source"], frame["target"], strict=True)
    ]
    means = frame.groupby(np.array(false))[["agreement", "weight"]].mean()
    assert (means.loc[True] < means.loc[False]).all()


def test_the_recipe_reaches_the_fitted_model() -> None:
    model, graph = amortised(), planted()
    cleaned = model.clean_graph()
    own = np.mean([train(cleaned, epochs=60, seed=seed) for seed in range(3)])
    # Noise of so many test nodes, two standard errors.
    tests = int(graph.test_mask.sum())
    score = model.score(graph)
    assert own > score - 2 * math.sqrt(score * (1 - score) / tests + 1e-4)
    cleaned.edge_weight = torch.ones_like(cleaned.edge_weight)
    assert own > train(cleaned, epochs=60)
