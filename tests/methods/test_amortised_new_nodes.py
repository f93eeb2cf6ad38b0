"""What an amortised fit says of edges that it never saw, also from its files."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InputWarning, InvalidInput, load_model
from gsebo.graph import Topology, canonicalise
from gsebo.graph.node_match import find_entries
from gsebo.methods import GraphClassifier
from gsebo.model.known import KnownEntries
from gsebo.model.layerwise import ChunkedGraph

from .auto_examples import auto, bare
from .examples import quick, small_graph, with_fields
from .saved import change_tensors
from .test_amortised import OwnNetwork

CLOSE = {"rtol": 0.0, "atol": 2e-6}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"per_layer": True, "residual": False},
    {"predictions": "features", "residual": False},
    {"predictions": "none", "residual": False, "renormalise": False},
    {"backbone": "gat", "residual": False, "label_use": "cross"},
    {"backbone": "sage", "residual": False, "evidence": "cosine,common"},
    {"backbone": "pyg:GCN", "residual": False},
    {"candidates": 2, "residual": True},
]
each_option = pytest.mark.parametrize("number", range(len(OPTIONS)))


def named_graph() -> Data:
    data = small_graph()
    return with_fields(data, node_id=torch.arange(data.num_nodes))


@cache
def fitted(number: int) -> GraphClassifier:
    """One fit for all tests, which leave it as it is."""
    return quick("amortised", **OPTIONS[number]).fit(named_graph())


def together(left: Data, right: Data) -> Data:
    """Two graphs beside each other, without an edge between them."""
    edges = [left.edge_index, right.edge_index + left.num_nodes]
    fields = {key: torch.cat([left[key], right[key]]) for key in ("x", "node_id")}
    return Data(edge_index=torch.cat(edges, dim=1), **fields)


def with_edges(data: Data, pairs: list[tuple[int, int]]) -> Data:
    added = torch.tensor(pairs).T
    return with_fields(data, edge_index=torch.cat([data.edge_index, added], dim=1))


def twins(data: Data) -> Data:
    """The graph with two more nodes that are alike in all respects."""
    new, x = data.num_nodes, (data.x[:1] + data.x[1:2]) / 2
    larger = with_fields(
        data, x=torch.cat([data.x, x, x]), node_id=torch.arange(new + 2)
    )
    pairs = [(node, new + twin) for node in (0, 5, 9) for twin in (0, 1)]
    pairs += [(target, source) for source, target in pairs]
    return with_edges(larger, pairs)


def free_pairs(data: Data, count: int) -> list[tuple[int, int]]:
    taken = set(map(tuple, data.edge_index.T.tolist()))
    every = [(i, j) for i in range(60) for j in range(60) if i != j]
    return [pair for pair in every if pair not in taken][:count]


@each_option
def test_two_graphs_side_by_side_do_not_meet(number: int) -> None:
    model, known = fitted(number), named_graph()
    other = small_graph(50, seed=3)
    other.node_id = torch.arange(50) + 1000
    found = model.predict_proba(together(known, other))
    torch.testing.assert_close(found[:60], model.probability_, **CLOSE)
    torch.testing.assert_close(found[60:], model.predict_proba(other), **CLOSE)


@pytest.mark.parametrize(
    "number",
    [k for k, options in enumerate(OPTIONS) if options.get("residual") is False],
)
def test_a_function_says_of_strangers_what_it_says_of_the_known(number: int) -> None:
    model = fitted(number)
    strangers = with_fields(named_graph(), node_id=torch.arange(60) + 1000)
    assert model.model_.new_in(strangers) == (60, strangers.num_edges)
    found = model.predict_proba(strangers)
    torch.testing.assert_close(found, model.probability_, **CLOSE)


@each_option
def test_new_nodes_that_are_alike_are_treated_alike(number: int) -> None:
    model, data = fitted(number), twins(named_graph())
    assert model.model_.new_in(data) == (2, 12)
    found = model.predict_proba(data)
    torch.testing.assert_close(found[60], found[61], **CLOSE)
    assert not torch.allclose(found[:60], model.probability_)


def weights_on(model: GraphClassifier, data: Data) -> Tensor:
    """Weights of all edges in the order of ``data``, by a network that keeps them."""
    fit, graph = model.model_, canonicalise(data)
    assert fit.scorer is not None
    node = torch.arange(data.num_nodes)
    entry = find_entries(
        fit.graph.edge_index,
        fit.graph.num_nodes,
        graph,
        torch.where(node < 60, node, -1),
        self_loops=fit.backbone.self_loops,
    )
    known = KnownEntries(entry, node, graph.num_edges)
    topology = Topology.of(graph, self_loops=fit.backbone.self_loops, device="cpu")
    whole = ChunkedGraph(topology, data.x)
    found = fit.scorer.strengths(
        whole,
        fit.backbone,
        fit.num_classes,
        kept=lambda fresh: known.kept(fit.scorer.weights, fresh),
    )(whole.whole)
    return graph.to_user_order(found[: graph.num_edges], torch.ones(data.num_nodes))


def test_known_edges_keep_their_weight_and_new_ones_are_scored() -> None:
    model, data = fitted(4), named_graph()
    old = data.num_edges
    before = weights_on(model, data)
    assert torch.equal(
        before,
        model.model_.graph.to_user_order(model.model_.scorer.weights, torch.ones(60)),
    )
    after = weights_on(model, with_edges(twins(data), free_pairs(data, 30)))
    assert torch.equal(after[:old], before)
    new = after[old:]
    assert len(new) == 42
    assert bool((new > 0).all())
    assert not bool((new - 1).abs().lt(1e-4).any())
    assert len(new.unique()) > 20


@pytest.mark.exact
@each_option
def test_files_say_the_same(number: int, tmp_path: Path) -> None:
    model, data = fitted(number), named_graph()
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.predict_proba(data), model.probability_)
    larger = with_edges(twins(data), free_pairs(data, 5))
    expected = model.predict_proba(larger)
    assert torch.equal(loaded.predict_proba(larger), expected)
    loaded.save(tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert torch.equal(again.predict_proba(larger), expected)
    assert torch.equal(again.new_edge_index_, model.new_edge_index_)


def test_a_network_of_the_user_in_files(tmp_path: Path) -> None:
    model = quick("amortised", backbone=OwnNetwork).fit(named_graph())
    model.save(tmp_path)
    loaded = load_model(tmp_path, backbone=OwnNetwork)
    data = twins(named_graph())
    assert torch.equal(loaded.predict_proba(data), model.predict_proba(data))


@pytest.mark.parametrize("features", ["standard", "none"])
def test_a_function_that_was_chosen_is_saved(features: str, tmp_path: Path) -> None:
    data = named_graph()
    larger = with_edges(data, free_pairs(data, 5))
    if features == "none":
        # Nodes are told apart by their numbers then, so that there can be no new ones.
        data, larger, features = bare(data), bare(larger), "auto"
    else:
        larger = twins(larger)
    model = auto(
        methods="amortised", features=features, max_epochs=10, evaluate_every=5
    ).fit(data)
    assert model.chosen_ == "amortised"
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.predict_proba(data), model.probability_)
    expected = model.predict_proba(larger)
    assert torch.equal(loaded.predict_proba(larger), expected)
    assert not torch.allclose(expected[:60], model.probability_)


def test_without_a_refit_new_edges_are_vanilla(tmp_path: Path) -> None:
    model = quick("amortised", refit=False).fit(named_graph())
    model.save(tmp_path)
    data = twins(named_graph())
    with pytest.warns(InputWarning, match=f"^12 of {data.num_edges} edges"):
        expected = model.predict_proba(data)
    with pytest.warns(InputWarning):
        assert torch.equal(load_model(tmp_path).predict_proba(data), expected)


@pytest.mark.parametrize("name", ["scorer:hidden", "scorer:mean", "edge_weights"])
def test_half_a_function_is_refused(name: str, tmp_path: Path) -> None:
    fitted(0).save(tmp_path)
    change_tensors(tmp_path, lambda tensors: drop(tensors, name))
    with pytest.raises(InvalidInput, match="does not fit its own description"):
        load_model(tmp_path)


def drop(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key != name}
