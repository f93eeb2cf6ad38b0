"""Fitted models of graphs with types: other graphs, and files, whole or damaged."""

from __future__ import annotations

import copy
import random
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gsebo import InputWarning, InvalidInput, load_model
from gsebo.graph.graph import as_graph
from gsebo.methods import GraphClassifier
from gsebo.training import Checkpoint

from .examples import (
    quick,
    small_graph,
)
from .saved import (
    assert_flips_do_no_harm,
    assert_refused,
    assert_same_model,
    change_facts,
    change_tensors,
    everything,
    facts_of,
    same,
)
from .typed_graphs import RELATIONS, TYPES, typed_graph
from .typed_networks import (
    MODULES,
    module,
    network,
)

CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return typed_graph()


# --- graphs of other nodes and edges --------------------------------------------------

MODELS: dict[str, Callable[[], GraphClassifier]] = {
    "vanilla, relational": lambda: quick("vanilla", backbone="relational-gcn"),
    "gsebo": lambda: quick("gsebo"),
    "gsebo, bases": lambda: quick("gsebo", **network("of bases"), per_layer=True),
    "gsebo, han": lambda: quick("gsebo", **network("han")),
    "amortised": lambda: quick("amortised"),
    "amortised, relational": lambda: quick("amortised", backbone="relational-gcn"),
    "amortised, layers": lambda: quick(
        "amortised", **network("of bases"), per_layer=True
    ),
    "auto": lambda: quick("auto", backbone="relational-gcn", features="standard"),
    "degrees": lambda: quick("vanilla", backbone="relational-gcn", features="degree"),
    "hgsl": lambda: quick("hgsl"),
    "mlp": lambda: quick("mlp"),
}


@cache
def fitted(name: str) -> GraphClassifier:
    return MODELS[name]().fit(typed_graph())


def grown(data: HeteroData) -> HeteroData:
    """The graph with two more authors, a paper between them, and some edges."""
    other = data.clone()
    sizes = {name: int(data[name].num_nodes) for name in TYPES}
    for name, count in (("author", 2), ("paper", 1)):
        fresh = data[name].x[:count] * 0.5 + 0.1
        other[name].x = torch.cat([data[name].x, fresh])
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        del other["author"][key]
    authors = torch.tensor([sizes["author"], sizes["author"] + 1, 0])
    paper = torch.full((3,), sizes["paper"])
    wrote = torch.stack([authors, paper])
    knows = torch.stack([authors[:1], torch.tensor([4])])
    for relation, new in (
        (RELATIONS[0], wrote),
        (RELATIONS[1], wrote.flip(0)),
        (RELATIONS[4], knows),
    ):
        other[relation].edge_index = torch.cat([new, data[relation].edge_index], dim=1)
    return other


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_was_saved(name: str, data: HeteroData, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert_same_model(model, found, data)
    other = grown(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        assert torch.equal(found.predict_proba(other), model.predict_proba(other))
    table, expected = found.edges_frame(), model.edges_frame()
    assert table.equals(expected)
    assert found.edges_frame(undirected=True).equals(model.edges_frame(undirected=True))
    assert found.clean_graph().edge_types == data.edge_types
    found.save(tmp_path / "again")
    assert same(everything(load_model(tmp_path / "again")), everything(found))


@pytest.mark.parametrize("name", MODULES)
def test_a_users_network_is_saved_and_read(
    name: str, data: HeteroData, tmp_path: Path
) -> None:
    model = quick("gsebo", backbone=module(name)).fit(data)
    assert model.strength_.shape == (440,)
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model", backbone=module(name))
    assert_same_model(model, found, data)
    with pytest.raises(InvalidInput, match="expected load_model"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("name", MODELS)
def test_new_nodes_and_edges(name: str, data: HeteroData) -> None:
    model, other = fitted(name), grown(data)
    assert model.model_.new_in(as_graph(other)) == (3, 7)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = model.predict_proba(other)
    assert found.shape == (96, 3)
    torch.testing.assert_close(found.sum(-1), torch.ones(96))
    # Strengths of single edges say nothing of others.
    says_nothing = model.model_.learned and model.model_.scorer is None
    assert [each.category for each in told] == [InputWarning] * says_nothing
    if name != "mlp":
        assert not torch.allclose(found[:30], model.probability_[:30])


@pytest.mark.parametrize(
    # How much a relation counts, or what is done to features, is of all nodes.
    "name",
    [name for name in MODELS if name not in ("auto", "degrees", "gsebo, han")],
)
def test_what_does_not_touch_a_node_does_not_change_it(
    name: str, data: HeteroData
) -> None:
    """Edges that a fit knew keep what was learned, each in its own relation."""
    other = data.clone()
    other["author"].x = torch.cat([data["author"].x, torch.ones(1, 6)])
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        del other["author"][key]
    model = fitted(name)
    assert model.model_.new_in(as_graph(other)) == (1, 0)
    found = model.predict_proba(other)
    kept = torch.arange(94) != 30
    torch.testing.assert_close(found[kept], model.probability_, rtol=0, atol=1e-5)


def test_amortised_strengths_know_the_relation(data: HeteroData) -> None:
    """The same new edge in two relations has two weights."""
    model = quick(
        "amortised",
        backbone="relational-gcn",
        evidence="relation",
        predictions="none",
        residual=False,
        max_outer_steps=8,
    ).fit(data)
    weights, kind = model.model_.scorer.weights, model.model_.graph.types.edge_type
    of_relation = [weights[kind == number].unique() for number in range(6)]
    assert all(len(each) == 1 for each in of_relation)
    assert len(torch.cat(of_relation).unique()) == 6
    # A new edge has the weight of its relation.
    predicted = []
    for number in (4, 5):
        other = data.clone()
        edges = other[RELATIONS[number]].edge_index
        new = torch.tensor([[1], [7]])
        other[RELATIONS[number]].edge_index = torch.cat([edges, new], dim=1)
        predicted.append(model.predict_proba(other))
    assert not torch.allclose(*predicted)


def test_other_types_and_relations_are_refused(data: HeteroData) -> None:
    model = fitted("amortised, relational")
    graph = as_graph(data)
    fewer = data.clone()
    del fewer["author", "cites", "author"]
    more = data.clone()
    more["venue", "near", "venue"].edge_index = torch.tensor([[0], [1]])
    renamed = copy.copy(graph)
    renamed.meta = {**graph.meta, "node_types": ["author", "paper", "place"]}
    renamed.meta["edge_types"] = [
        [each.replace("venue", "place") for each in relation] for relation in RELATIONS
    ]
    renamed.meta.pop("without_features", None)
    wider = data.clone()
    wider["author"].x = torch.ones(30, 5)
    wider["paper"].x = torch.ones(60, 5)
    for other in (fewer, more, renamed, graph.without_types(), wider):
        for ask in (model.predict, lambda one: model.model_.new_in(as_graph(one))):
            with pytest.raises(
                InvalidInput, match="as in the graph of the fit"
            ) as told:
                ask(other)
            assert "\n" not in str(told.value)
    plain = quick("vanilla").fit(small_graph(num_features=11))
    with pytest.raises(InvalidInput, match="expected one type of nodes"):
        plain.predict(data)


def test_which_type_has_classes_is_that_of_the_fit() -> None:
    """A graph without labels does not say it."""
    data = typed_graph()
    graph = as_graph(data)
    bare = copy.copy(graph)
    bare.meta = {key: each for key, each in graph.meta.items() if key != "target"}
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        del bare[key]
    assert bare.types.classified is None
    model = fitted("amortised, relational")
    other = grown(data)
    unlabelled = as_graph(other)
    unlabelled.meta.pop("target", None)
    assert torch.equal(model.predict_proba(bare), model.predict_proba(data))
    assert torch.equal(model.predict_proba(unlabelled), model.predict_proba(other))


def test_a_checkpoint_is_of_its_types(tmp_path: Path) -> None:
    graph = as_graph(typed_graph(8))
    checkpoint = Checkpoint(tmp_path / "state", every_seconds=0, resume=True)
    options = {"backbone": "relational-gcn", "max_outer_steps": 2}
    model = quick("gsebo", **options).fit(graph, checkpoint=checkpoint)
    again = quick("gsebo", **options).fit(graph, checkpoint=checkpoint)
    assert torch.equal(model.probability_, again.probability_)
    other = copy.copy(graph)
    other.edge_type = graph.edge_type.clone()
    other.edge_type[-1] = 4
    with pytest.raises(InvalidInput, match="another"):
        quick("gsebo", **options).fit(other, checkpoint=checkpoint)


# --- damaged files --------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of types; copy it before harming it."""
    folder = tmp_path_factory.mktemp("typed")
    fitted("amortised, relational").save(folder)
    return folder


def in_graph(**changes: Any) -> Callable[[dict], dict]:
    return lambda facts: {"graph": facts["graph"] | changes}


TOLD = [list(each) for each in RELATIONS]
WRONG: dict[str, Callable[[dict], dict]] = {
    "names twice": in_graph(node_types=["author", "author", "venue"]),
    "fewer types": in_graph(node_types=["author", "paper"]),
    "more types": in_graph(node_types=[*TYPES, "place"]),
    "no types": in_graph(node_types=[]),
    "types of other names": in_graph(node_types=["author", "paper", "place"]),
    "relations twice": in_graph(edge_types=[*TOLD[:5], TOLD[4]]),
    "fewer relations": in_graph(edge_types=TOLD[:5]),
    "more relations": in_graph(edge_types=[*TOLD, ["venue", "near", "venue"]]),
    "no relations": in_graph(edge_types=[]),
    "relations in another order": in_graph(edge_types=TOLD[::-1]),
    "a class of no type": in_graph(classified=3),
    "a class below all types": in_graph(classified=-1),
    "columns of two types": in_graph(columns=[[0, 6], [6, 11]]),
    "columns twice": in_graph(columns=[[0, 6], [3, 10], [10, 11]]),
    "columns that end before": in_graph(columns=[[0, 6], [10, 6], [10, 11]]),
    "a scorer of other relations": lambda facts: {
        "scorer": facts["scorer"] | {"relations": 5}
    },
    "a scorer of very many": lambda facts: {
        "scorer": facts["scorer"] | {"relations": 2**40}
    },
    "a scorer of none": lambda facts: {"scorer": facts["scorer"] | {"relations": 0}},
}


@pytest.mark.parametrize("case", WRONG)
def test_types_that_are_told_wrongly(case: str, stored: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    change_facts(folder, **WRONG[case](facts_of(folder)))
    assert_refused(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("edge_type", lambda numbers: numbers + 3),
        ("edge_type", lambda numbers: numbers - 1),
        ("edge_type", lambda numbers: numbers.flip(0)),
        ("edge_type", lambda numbers: numbers[:-1]),
        ("node_type", lambda numbers: numbers.flip(0)),
        ("node_type", lambda numbers: numbers.float()),
        ("weight:bases.0", lambda weights: weights[:5]),
    ],
)
def test_numbers_of_types_that_are_wrong(
    name: str, change: Callable[[Tensor], Tensor], stored: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    change_tensors(folder, lambda held: held | {name: change(held[name]).contiguous()})
    assert_refused(folder)


def test_any_flipped_byte_is_refused_or_means_nothing(
    stored: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    draw = random.Random(0)

    def places(size: int) -> set[int]:
        return {0, 8, 100, *(draw.randrange(size) for _ in range(6))}

    assert_flips_do_no_harm(folder, draw, places)
