"""Weights and attributes of edges are used, by every method or with a word."""

import copy
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gsebo
from gsebo import (
    GSEBO,
    Amortised,
    InputWarning,
    InvalidInput,
    Vanilla,
    load_model,
)
from gsebo.data.formats.folder import write_folder
from gsebo.graph import Graph
from gsebo.methods import METHODS, GraphClassifier
from gsebo.methods.fitting import PreparedGraph, make_problem
from methods.batch_examples import WHOLE, amortised_on_batches, gsebo_on_batches
from methods.examples import NAMES, assert_same_fit, quick, small_graph, with_fields
from methods.saved import (
    assert_refused,
    assert_same_model,
    change_tensors,
)

UNUSED = [name for name in NAMES if not METHODS[name].estimator.uses_edge_weight]


def weights_for(data: Graph, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(data.num_edges, generator=generator) + 0.1


@pytest.fixture(scope="module")
def plain() -> Graph:
    return small_graph()


@pytest.fixture(scope="module")
def weighted(plain: Graph) -> Graph:
    return with_fields(plain, edge_weight=weights_for(plain))


def told(model: GraphClassifier, data: Graph) -> set[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(data)
    return {str(each.message) for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_one_give_the_same_bits_as_none(name: str, plain: Graph) -> None:
    ones = with_fields(plain, edge_weight=torch.ones(plain.num_edges))
    assert_same_fit(quick(name).fit(plain), quick(name).fit(ones))


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk"])
def test_and_so_they_do_with_every_network(backbone: str, plain: Graph) -> None:
    ones = with_fields(plain, edge_weight=torch.ones(plain.num_edges, dtype=torch.int))
    for name in ("gsebo", "amortised"):
        make = partial(quick, name, backbone=backbone)
        assert_same_fit(make().fit(plain), make().fit(ones))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNUSED])
def test_other_weights_give_another_fit(
    name: str, plain: Graph, weighted: Graph
) -> None:
    model = quick(name)
    # A warning would be an error.
    first = model.fit(weighted).probability_
    if name == "mlp":
        assert torch.equal(first, quick(name).fit(plain).probability_)
        return
    assert not torch.equal(first, quick(name).fit(plain).probability_)
    assert bool(first.isfinite().all())
    assert torch.equal(model.predict_proba(weighted), first)


@pytest.mark.parametrize("name", UNUSED)
def test_a_method_that_does_not_use_them_says_so(
    name: str, plain: Graph, weighted: Graph
) -> None:
    model = quick(name)
    messages = told(model, weighted)
    assert messages == {f"{type(model).__name__} does not use edge weights."}
    assert_same_fit(model, quick(name).fit(plain))
    with pytest.warns(InputWarning, match="does not use edge weights"):
        found = model.predict_proba(weighted)
    assert torch.equal(found, model.probability_)
    assert "edge_weight" in model.graph_


@pytest.mark.parametrize("name", ["vanilla", "gsebo", "lds"])
def test_who_does_not_use_attributes_says_so(name: str, plain: Graph) -> None:
    given = with_fields(plain, edge_attr=torch.randn(plain.num_edges, 2))
    model = quick(name)
    assert told(model, given) == {f"{type(model).__name__} does not use edge_attr."}
    assert_same_fit(model, quick(name).fit(plain))


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "GraphConv"])
@pytest.mark.parametrize("direct_term", [False, True])
def test_hypergradient_on_a_weighted_graph(
    weighted: Graph, backbone: str, direct_term: bool
) -> None:
    model = GSEBO(backbone, hidden_channels=4, direct_term=direct_term, random_state=0)
    check = gsebo.check_hypergradient(model, weighted, inner_steps=4)
    assert check.relative_error < 1e-4


def test_hypergradient_of_the_function(weighted: Graph) -> None:
    given = with_fields(weighted, edge_attr=weights_for(weighted, 1))
    model = GSEBO(
        structure="amortised",
        hidden_channels=5,
        direct_term=True,
        random_state=0,
    )
    check = gsebo.check_hypergradient(model, given, inner_steps=3)
    assert check.relative_error < 1e-4


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk"])
@pytest.mark.parametrize("tied", [False, True])
def test_strengths_begin_at_the_weights_and_stay_in_bounds(
    plain: Graph, backbone: str, tied: bool
) -> None:
    weight = 5 * weights_for(plain)
    weight[:4] = 0
    data = with_fields(plain, edge_weight=weight)
    sizes = {"hidden_channels": 8}
    vanilla = Vanilla(backbone, **sizes, max_epochs=1, random_state=0).fit(data)
    options = {"tied": tied, "outer_lr": 50.0, "select_by": "last"}
    model = quick("gsebo", backbone=backbone, **options).fit(data)
    start, end = model.initial_strength_, model.strength_
    assert torch.equal(start, vanilla.strength_)
    if backbone == "gat":
        torch.testing.assert_close(start, weight)
    assert bool((end >= 0).all()) and bool((end <= start.clamp(min=1)).all())
    assert bool((end[:4] == 0).all())
    assert bool((end != start).any())


def test_the_function_starts_at_the_vanilla_strengths(weighted: Graph) -> None:
    for renormalise in (True, False):
        model = Amortised(renormalise=renormalise, random_state=0)
        prepared = PreparedGraph(weighted, torch.device("cpu"))
        problem = make_problem(
            prepared,
            model.network(),
            model.make_structure(),
            outer_nodes=torch.arange(3),
            weight_decay=0.0,
            seed=0,
        )
        start = problem.task.initial_strengths
        torch.testing.assert_close(problem.initial_strengths, start)


def test_evidence_has_columns_for_what_the_graph_has(
    plain: Graph, weighted: Graph
) -> None:
    attr = torch.randn(plain.num_edges, 3, generator=torch.Generator().manual_seed(1))
    both = with_fields(weighted, edge_attr=attr)
    widths = [
        quick("amortised").fit(data).model_.scorer.structure.num_columns
        for data in (plain, weighted, with_fields(plain, edge_attr=attr), both)
    ]
    assert widths == [7, 8, 10, 11]
    named = quick("amortised", evidence="cosine,edge_attr").fit(both)
    assert named.model_.scorer.structure.num_columns == 5
    with pytest.raises(InvalidInput, match="for a graph without edge_attr"):
        quick("amortised", evidence="cosine,edge_attr").fit(plain)


def test_added_edges_have_the_median_weight(weighted: Graph) -> None:
    prepared = PreparedGraph(weighted, torch.device("cpu"))
    given = prepared.graph
    assert given.weight is not None
    size = given.num_nodes
    taken = set(map(tuple, given.edge_index.T.tolist()))
    free = next((0, j) for j in range(1, size) if (0, j) not in taken)
    more = torch.cat([given.edge_index, torch.tensor(free).view(2, 1)], 1)
    found = prepared.with_edges(more).graph
    assert found.weight is not None
    new = (torch.tensor(free) == found.edge_index.T).all(1)
    assert torch.equal(found.weight[~new], given.weight)
    assert float(found.weight[new]) == float(given.weight.median())


# Graphs that are not the one of the fit.


def test_a_graph_without_weights_is_refused_by_who_has_seen_some(
    plain: Graph, weighted: Graph
) -> None:
    for name in ("vanilla", "gsebo", "amortised"):
        model = quick(name).fit(weighted)
        with pytest.raises(InvalidInput, match="no edge_weight; expected one, as in"):
            model.predict(plain)
        ones = with_fields(plain, edge_weight=torch.ones(plain.num_edges))
        assert bool(model.predict_proba(ones).isfinite().all())


def test_known_edges_keep_the_factor_that_was_learned(weighted: Graph) -> None:
    """A weight twice as large has twice the strength, in a network of sums."""
    model = quick("gsebo", backbone="gat").fit(weighted)
    other = with_fields(weighted, edge_weight=2 * weighted.edge_weight)
    fit = model.model_
    strengths = fit.strengths.clone()
    edges = fit.graph.num_edges
    strengths[..., :edges] *= 2
    pattern = PreparedGraph(other, fit.device).topology(self_loops=True).pattern
    expected = fit.backbone(other.x, pattern, strengths, None)
    torch.testing.assert_close(model.predict_proba(other), expected.softmax(-1))


def test_weights_of_another_graph_enter_as_in_the_fit(
    plain: Graph, weighted: Graph
) -> None:
    other = with_fields(weighted, edge_weight=weights_for(plain, 5))
    for name in ("vanilla", "amortised"):
        model = quick(name).fit(weighted)
        assert not torch.allclose(model.predict_proba(other), model.probability_)
    model = quick("vanilla").fit(weighted)
    fit = model.model_
    again = quick("vanilla").fit(other).model_
    pattern = PreparedGraph(other, fit.device).topology(self_loops=True).pattern
    expected = fit.backbone(other.x, pattern, again.start, None)
    torch.testing.assert_close(model.predict_proba(other), expected.softmax(-1))


def test_members_say_that_they_keep_what_they_learned(weighted: Graph) -> None:
    model = quick("adaedge").fit(weighted)
    if not model.model_.members:
        pytest.skip("nothing was changed")
    other = with_fields(weighted, edge_weight=2 * weighted.edge_weight)
    with pytest.warns(InputWarning, match="have another weight than in"):
        model.predict(other)


# Files.


@pytest.mark.parametrize("name", ["vanilla", "gsebo", "amortised", "auto", "adaedge"])
def test_saved_models_are_the_same(name: str, weighted: Graph, tmp_path: Path) -> None:
    data = with_fields(weighted, edge_attr=weights_for(weighted, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        model = quick(name).fit(data)
        model.save(tmp_path)
        again = load_model(tmp_path)
        assert_same_model(model, again, data)
        other = with_fields(data, edge_weight=weights_for(data, 9))
        assert torch.equal(again.predict_proba(other), model.predict_proba(other))


def test_saved_weights_are_checked(weighted: Graph, tmp_path: Path) -> None:
    quick("vanilla").fit(weighted).save(tmp_path)
    change_tensors(
        tmp_path, lambda tensors: {**tensors, "edge_weight": -tensors["edge_weight"]}
    )
    assert_refused(tmp_path)


def test_files_of_graphs_without_are_as_before(plain: Graph, tmp_path: Path) -> None:
    quick("amortised").fit(plain).save(tmp_path)
    assert "edge_w" not in (tmp_path / "model.json").read_text()
    assert "weighted" not in (tmp_path / "model.json").read_text()


# Batches and folders.


@pytest.mark.exact
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("name", ["gsebo", "amortised"])
def test_one_batch_of_everything_is_no_batch(
    weighted: Graph, name: str, backbone: str
) -> None:
    more = {"select_by": "last"} if name == "gsebo" else {}
    whole, batch = (
        quick(name, backbone=backbone, **options, **more).fit(weighted)
        for options in ({}, WHOLE)
    )
    assert bool((whole.strength_ != whole.initial_strength_).any())
    assert_same_fit(whole, batch)


@pytest.mark.parametrize("make", [gsebo_on_batches, amortised_on_batches])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat"])
def test_batches_carry_weights(
    plain: Graph, weighted: Graph, make: Any, backbone: str
) -> None:
    model = make(backbone=backbone).fit(weighted)
    other = make(backbone=backbone).fit(plain)
    assert bool(model.probability_.isfinite().all())
    assert not torch.equal(model.probability_, other.probability_)
    assert torch.equal(
        model.initial_strength_,
        quick("vanilla", backbone=backbone).fit(weighted).initial_strength_,
    )
    ones = with_fields(plain, edge_weight=torch.ones(plain.num_edges))
    assert_same_fit(other, make(backbone=backbone).fit(ones))


@pytest.mark.exact
@pytest.mark.parametrize("make", [gsebo_on_batches, amortised_on_batches])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat"])
def test_folders_carry_weights(
    weighted: Graph, tmp_path: Path, make: Any, backbone: str
) -> None:
    data = weighted
    if make is amortised_on_batches:
        attr = torch.stack([weights_for(weighted, seed) for seed in (3, 4)], -1)
        data = with_fields(weighted, edge_attr=attr)
    folder = write_folder(data, tmp_path / "g")
    again = folder.to_data()
    assert torch.equal(
        PreparedGraph(again, torch.device("cpu")).graph.weight,
        PreparedGraph(data, torch.device("cpu")).graph.weight,
    )
    on_disk = make(backbone=backbone).fit(folder)
    in_memory = make(backbone=backbone).fit(data)
    found = on_disk.predict_proba(folder)
    torch.testing.assert_close(found, in_memory.probability_, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(on_disk.predict_proba(data), found)
    on_disk.save(tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model").predict_proba(folder), found)
    bare = copy.copy(data)
    del bare["edge_weight"]
    with pytest.raises(InvalidInput, match="no edge_weight"):
        on_disk.predict(bare)


def test_another_number_of_attributes_is_refused(plain: Graph) -> None:
    data = with_fields(plain, edge_attr=torch.randn(plain.num_edges, 2))
    model = quick("amortised").fit(data)
    for columns in (1, 3):
        other = with_fields(plain, edge_attr=torch.randn(plain.num_edges, columns))
        with pytest.raises(InvalidInput, match=f"has {columns} columns of edge_attr"):
            model.predict(other)
    with pytest.raises(InvalidInput, match="has 0 columns of edge_attr; expected 2"):
        model.predict(plain)
