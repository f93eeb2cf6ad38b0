"""Every estimator on graphs with other nodes and edges than those of its fit."""

import copy
import re
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InputWarning, InvalidInput, load_model
from gsebo.data import apply_split, visible_part
from gsebo.graph import Topology, canonicalise
from gsebo.methods import GraphClassifier

from .examples import NAMES, permuted, quick, small_graph, to_csr, with_fields
from .saved import change_facts, change_tensors, facts_of

CLOSE = {"rtol": 0.0, "atol": 2e-6}
each_method = pytest.mark.parametrize("name", NAMES)


@cache
def fitted(name: str, named: bool = False) -> GraphClassifier:
    """One fit for all tests, which leave it as it is."""
    return quick(name).fit(named_graph() if named else small_graph())


def named_graph() -> Data:
    data = small_graph()
    return with_fields(data, node_id=torch.arange(data.num_nodes) * 3 + 100)


def with_node(data: Data, neighbors: list[int]) -> Data:
    """The graph with one more node, joined to others in both directions."""
    new = data.num_nodes
    ends = torch.tensor([neighbors, [new] * len(neighbors)], dtype=torch.int64)
    fields = {
        "x": torch.cat([data.x, data.x[:1] * 0.5 + 0.1]),
        "edge_index": torch.cat([ends.flip(0), data.edge_index, ends], dim=1),
    }
    if "node_id" in data:
        fields["node_id"] = torch.cat([data.node_id, torch.tensor([7])])
    return Data(**fields)


def strength_of_pairs(model: GraphClassifier) -> dict[tuple[int, int], Tensor]:
    """What is kept of every entry of the fit, by its two nodes."""
    edges = model.model_.graph.edge_index.T.tolist()
    loops = [[node, node] for node in range(model.model_.graph.num_nodes)]
    kept = model.model_.strengths
    if model.model_.scorer is not None:
        weights = model.model_.scorer.weights
        kept = torch.cat([weights, weights.new_ones(len(loops))])
    columns = kept.unbind(-1)
    pairs = [*edges, *loops][: len(columns)]
    return {tuple(p): column for p, column in zip(pairs, columns, strict=True)}


def network_on(model: GraphClassifier, data: Data, strengths: Tensor) -> Tensor:
    fitted_model, pattern = model.model_, topology_of(model, data).pattern
    prepared = fitted_model.preparation
    x = data.x if prepared is None else prepared.features(data)
    with torch.no_grad():
        return fitted_model.backbone(x, pattern, strengths, None).softmax(-1)


def vanilla_strengths(model: GraphClassifier, data: Data) -> Tensor:
    return model.model_.backbone.initial_strength(topology_of(model, data).pattern)


def topology_of(model: GraphClassifier, data: Data) -> Topology:
    loops = model.model_.backbone.self_loops
    return Topology.of(canonicalise(data), self_loops=loops, device="cpu")


def warns_of_new_edges(
    model: GraphClassifier, text: str
) -> AbstractContextManager[object]:
    """Whoever scores new edges has nothing to warn of."""
    scored = model.model_.scorer is not None
    return nullcontext() if scored else pytest.warns(InputWarning, match=text)


@each_method
def test_an_isolated_node_changes_nobody_else(name: str) -> None:
    model = fitted(name)
    larger = model.predict_proba(with_node(small_graph(), []))
    assert larger.shape == (61, model.num_classes_)
    torch.testing.assert_close(larger[:60], model.probability_, **CLOSE)
    torch.testing.assert_close(larger.sum(-1), torch.ones(61))


@each_method
def test_names_find_permuted_nodes(name: str) -> None:
    model = fitted(name, named=True)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    moved = permuted(named_graph(), order)
    moved.node_id = moved.node_id[order]
    torch.testing.assert_close(
        model.predict_proba(moved), model.probability_[order], **CLOSE
    )


@each_method
def test_one_new_node(name: str) -> None:
    model, data = fitted(name), with_node(small_graph(), [0, 5])
    if not model.model_.learned:
        expected = network_on(model, data, vanilla_strengths(model, data))
        torch.testing.assert_close(model.predict_proba(data), expected, **CLOSE)
        return
    with warns_of_new_edges(model, f"^4 of {data.num_edges} edges are not in"):
        found = model.predict_proba(data)
    assert found.shape == (61, model.num_classes_)
    assert bool(torch.isfinite(found).all())
    lonely = model.predict_proba(with_node(small_graph(), []))
    assert not torch.equal(found[60], lonely[60])


@each_method
def test_nodes_that_are_gone(name: str) -> None:
    model = fitted(name, named=True)
    split = apply_split(named_graph(), "unseen:50:file", 1)
    rest = visible_part(split)
    found = model.predict_proba(rest)
    if model.model_.members:
        assert found.shape == (rest.num_nodes, model.num_classes_)
        return
    if model.model_.learned:
        known, kept = strength_of_pairs(model), (~split.unseen_mask).nonzero().squeeze()
        pattern = topology_of(model, rest).pattern
        pairs = kept[torch.stack([pattern.column_of_entry, pattern.row_of_entry])]
        strengths = torch.stack([known[tuple(pair)] for pair in pairs.T.tolist()], -1)
        if model.model_.scorer is not None:
            # The weights of edges are kept; how they are normalised is up to the graph.
            strengths = model.model_.backbone.normalise(pattern, strengths)
        expected = network_on(model, rest, strengths)
    else:
        expected = network_on(model, rest, vanilla_strengths(model, rest))
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "pyg:GCN"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_new_edges_are_vanilla_and_others_keep_their_strength(
    backbone: str, per_layer: bool
) -> None:
    model = quick("gsebo", backbone=backbone, per_layer=per_layer).fit(small_graph())
    data = with_node(small_graph(), [3, 8, 2])
    with pytest.warns(InputWarning):
        found = model.predict_proba(data)
    pattern, known = topology_of(model, data).pattern, strength_of_pairs(model)
    vanilla = vanilla_strengths(model, data)
    pairs = torch.stack([pattern.column_of_entry, pattern.row_of_entry]).T.tolist()
    fresh = vanilla.expand(*model.model_.strengths.shape[:-1], -1).unbind(-1)
    mixed = [known.get(tuple(p), v) for p, v in zip(pairs, fresh, strict=True)]
    expected = network_on(model, data, torch.stack(mixed, dim=-1))
    torch.testing.assert_close(found, expected, **CLOSE)


def test_the_warning_is_one_sentence() -> None:
    data = with_node(small_graph(), [1])
    with pytest.warns(InputWarning) as caught:
        fitted("gsebo").predict(data)
    (warning,) = caught
    text = f"2 of {data.num_edges} edges are not in the graph of the fit and got"
    assert re.fullmatch(rf"{text} the vanilla weight, [^.\n]*\.", str(warning.message))


@pytest.mark.parametrize("name", ["gsebo", "idgl", "bgcn", "vanilla"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.filterwarnings("ignore::gsebo.InputWarning")
def test_a_saved_model_says_the_same_of_a_larger_graph(
    name: str, named: bool, tmp_path: Path
) -> None:
    model = fitted(name, named)
    data = with_node(named_graph() if named else small_graph(), [3, 8])
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.predict_proba(data), model.predict_proba(data))
    assert loaded.model_.new_in(data) == model.model_.new_in(data) == (1, 4)


@pytest.mark.filterwarnings("ignore::gsebo.InputWarning")
def test_a_model_that_kept_no_names_knows_positions_only(tmp_path: Path) -> None:
    model, data = fitted("gsebo", named=True), with_node(named_graph(), [3, 8])
    model.save(tmp_path)
    change_tensors(
        tmp_path,
        lambda tensors: {
            name: each
            for name, each in tensors.items()
            if name not in ("node_hash", "node_id")
        },
    )
    graph = facts_of(tmp_path)["graph"] | {"row_hashes": False, "node_ids": None}
    change_facts(tmp_path, graph=graph)
    older = load_model(tmp_path)
    assert torch.equal(older.predict_proba(data), model.predict_proba(data))
    other = with_fields(data, x=-data.x)
    assert older.model_.new_in(other) == (1, 4)
    older.save(tmp_path / "again")
    assert load_model(tmp_path / "again").model_.new_in(other) == (1, 4)


def test_what_is_new() -> None:
    data, model = small_graph(), fitted("gsebo").model_
    assert model.new_in(data) == (0, 0)
    assert model.new_in(with_fields(data, x=to_csr(data.x))) == (0, 0)
    # The very graph stays it, whatever its features are now.
    assert model.new_in(with_fields(data, x=-data.x)) == (0, 0)
    fewer = with_fields(data, edge_index=data.edge_index[:, 2:])
    assert model.new_in(fewer) == (0, 0)
    edges = canonicalise(fewer).num_edges
    assert model.new_in(with_fields(fewer, x=-data.x)) == (60, edges)
    sparse = with_fields(fewer, x=to_csr(data.x.double()))
    assert model.new_in(sparse) == (0, 0)
    other = small_graph(50, seed=3)
    assert model.new_in(other) == (50, canonicalise(other).num_edges)


def test_other_names_on_the_same_edges_are_other_nodes() -> None:
    model, data = fitted("gsebo", named=True), named_graph()
    other = with_fields(data, node_id=data.node_id + 1)
    assert model.model_.new_in(other) == (60, data.num_edges)
    assert model.model_.new_in(small_graph()) == (0, 0)


def test_a_fit_refuses_to_see_what_it_may_not() -> None:
    split = apply_split(small_graph(), "unseen:50:file")
    before = copy.copy(split)
    with pytest.raises(InvalidInput, match="15 nodes that a fit may not see"):
        quick("gsebo").fit(split)
    assert split.keys() == before.keys()
    quick("gsebo").fit(visible_part(split))
