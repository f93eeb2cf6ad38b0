"""GAug-M: how many pairs it changes, and which."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.methods.baselines.gaug.gaug_m import GAugM
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import PreparedGraph

from .examples import assert_same_fit, small_graph, with_fields

QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 6,
    "evaluate_every": 3,
    "predictor_epochs": 5,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(60)


def changed_pairs(model: GAugM, data: Data) -> tuple[set[int], set[int]]:
    """The pairs that a fitted model has added and removed."""
    n = data.num_nodes
    added = linked_pairs(model.new_edge_index_, n)
    removed = linked_pairs(data.edge_index[:, model.strength_ == 0], n)
    return set(added.tolist()), set(removed.tolist())


def embedding_of(model: GAugM, data: Data, seed: int = 0) -> Tensor:
    prepared = PreparedGraph(data, torch.device("cpu"))
    linked = linked_pairs(data.edge_index, data.num_nodes)
    return model._embedding(prepared, linked, seed)


@pytest.mark.parametrize("predictor", ["vgae", "gae"])
@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("percent", [(0, 30), (10, 0), (29, 57)])
def test_the_pairs_are_those_of_the_dense_ranking(
    data: Data, predictor: str, compat: bool, percent: tuple[int, int]
) -> None:
    n = data.num_nodes
    options = {"remove_share": percent[0] / 100, "add_share": percent[1] / 100}
    model = GAugM(**QUICK, **options, predictor=predictor, compat=compat).fit(data)
    added, removed = changed_pairs(model, data)
    linked = set(linked_pairs(data.edge_index, n).tolist())
    embedding = embedding_of(model, data)
    dense = (embedding @ embedding.T).triu(1).flatten()
    ranked = dense.argsort(descending=True, stable=True).tolist()
    every = [pair for pair in ranked if pair // n < pair % n]
    num_removed, num_added = (len(linked) * share // 100 for share in percent)
    assert len(removed) == num_removed
    assert len(added) == num_added
    assert removed == set([p for p in every if p in linked][::-1][:num_removed])
    assert added == set([p for p in every if p not in linked][:num_added])


def test_shares_are_counted_without_rounding_errors() -> None:
    ring = torch.arange(100)
    edges = torch.stack([ring, (ring + 1) % 100])
    graph = with_fields(
        small_graph(100), edge_index=torch.cat([edges, edges.flip(0)], 1)
    )
    model = GAugM(**QUICK, remove_share=0.29, add_share=0.57).fit(graph)
    # In floats 0.57 times 100 is below 57, and 0.29 times 100 below 29.
    added, removed = changed_pairs(model, graph)
    assert (len(added), len(removed)) == (57, 29)


def test_no_more_pairs_than_there_are() -> None:
    clique = torch.ones(12, 12).triu(1).nonzero().T[:, 1:]
    graph = with_fields(small_graph(12), edge_index=clique)
    model = GAugM(**QUICK, remove_share=0.0, add_share=0.9).fit(graph)
    assert model.new_edge_index_.T.tolist() == [[1, 0], [0, 1]]


def test_without_changes_it_is_vanilla(data: Data) -> None:
    model = GAugM(**QUICK, remove_share=0.0, add_share=0.0).fit(data)
    common = {k: v for k, v in QUICK.items() if k != "predictor_epochs"}
    assert_same_fit(model, Vanilla(**common).fit(data))


def test_in_a_directed_graph_new_pairs_go_both_ways(data: Data) -> None:
    n = data.num_nodes
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    model = GAugM(**QUICK, remove_share=0.1).fit(with_fields(data, edge_index=one_way))
    both = GAugM(**QUICK, remove_share=0.1).fit(data)
    added, removed = changed_pairs(model, with_fields(data, edge_index=one_way))
    assert (added, removed) == changed_pairs(both, data)
    nodes = nodes_of(torch.tensor(sorted(added)), n)
    new = {tuple(edge) for edge in model.new_edge_index_.T.tolist()}
    assert new == {tuple(e) for e in torch.cat([nodes, nodes.flip(0)], 1).T.tolist()}


@pytest.mark.parametrize("by", ["sum", "max"])
def test_the_predictor_sees_scaled_rows(data: Data, by: str) -> None:
    scale = torch.linspace(0.1, 9, data.num_nodes).unsqueeze(1)
    plain, scaled = (
        embedding_of(GAugM(**QUICK, predictor_scaling=by), with_fields(data, x=x))
        for x in (data.x, data.x * scale)
    )
    torch.testing.assert_close(scaled, plain)


def test_compat_trains_on_another_target_and_ranks_by_a_draw(data: Data) -> None:
    plain, compat = (
        embedding_of(GAugM(**QUICK, predictor="gae", compat=compat), data)
        for compat in (False, True)
    )
    assert not torch.allclose(plain, compat)
    # Before the first step the target does not matter, so what differs is the draw.
    still = QUICK | {"predictor_lr": 0.0}
    mean, drawn = (
        embedding_of(GAugM(**still, compat=compat), data) for compat in (False, True)
    )
    assert float((drawn - mean).abs().mean()) > 0.1


@pytest.mark.parametrize("predictor", ["vgae", "gae"])
def test_the_predictor_finds_communities(predictor: str) -> None:
    data = small_graph(
        120, homophily=0.95, average_degree=10.0, power_law_exponent=6.0, seed=2
    )
    model = GAugM(
        **QUICK | {"predictor_epochs": 60}, predictor=predictor, add_share=0.5
    )
    model.fit(data)
    source, target = model.new_edge_index_
    assert float((data.y[source] == data.y[target]).double().mean()) > 0.85


@pytest.mark.parametrize("backbone", ["gat", "sage", "jk", "mlp"])
def test_the_changed_graph_is_what_predicts(data: Data, backbone: str) -> None:
    model = GAugM(**QUICK, backbone=backbone).fit(data)
    kept = data.edge_index
    if backbone != "mlp":
        kept = kept[:, model.strength_ > 0]
    changed = torch.cat([kept, model.new_edge_index_], dim=1)
    common = {k: v for k, v in QUICK.items() if k != "predictor_epochs"}
    plain = Vanilla(**common, backbone=backbone)
    plain.fit(with_fields(data, edge_index=changed))
    torch.testing.assert_close(model.probability_, plain.probability_)


def test_each_replica_has_its_own_predictor(data: Data) -> None:
    together = GAugM(**QUICK).fit(data, replicas=2)
    alone = GAugM(**QUICK | {"random_state": 1}).fit(data)
    assert_same_fit(together.replicas_[1], alone)
    assert not torch.equal(together.new_edge_index_, alone.new_edge_index_)
