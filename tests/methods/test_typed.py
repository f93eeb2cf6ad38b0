"""Methods and networks on graphs with several types of nodes and relations."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch_geometric.data import HeteroData

import gsebo
from gsebo import InvalidInput, check_hypergradient
from gsebo.bilevel import begin, make_hypergradient, make_optimizer
from gsebo.data.noise.typed import add_false_typed_edges
from gsebo.graph import Graph
from gsebo.graph.graph import as_graph
from gsebo.methods import METHODS, GraphClassifier
from gsebo.structure import EdgeStrength
from gsebo.training import NodeClassification

from .examples import (
    NAMES,
    assert_same_fit,
    calm,
    problem_of,
    quick,
    small_graph,
)
from .typed_graphs import RELATIONS, TYPES, one_type, permuted_nodes, typed_graph
from .typed_networks import (
    MODULES,
    NETWORKS,
    module,
    network,
)

READS_TYPES = [name for name, info in METHODS.items() if info.estimator.reads_types]
CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return typed_graph()


# --- hypergradients -------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["reverse", "unrolled", "truncated"])
@pytest.mark.parametrize("name", [*MODULES, *NETWORKS])
def test_hypergradients_are_finite_differences(name: str, engine: str) -> None:
    model = gsebo.GSEBO(
        **network(name),
        hidden_channels=4,
        dropout=0.3,
        inner_steps=3,
        hypergradient=engine,
        random_state=0,
    )
    found = check_hypergradient(model, typed_graph(6), directions=2)
    assert bool((found.numeric != 0).all())
    found.raise_if_worse_than(2e-5)


@pytest.mark.parametrize("name", ["of bases", "han"])
@pytest.mark.parametrize(
    "options",
    [
        {"structure": "amortised", "direct_term": True},
        {"per_layer": True, "learn_self_loops": False},
        {"consistency": 1.0, "warmup": 2},
    ],
)
def test_so_are_those_of_other_structures(name: str, options: dict) -> None:
    common = {"hidden_channels": 4, "inner_steps": 2, "random_state": 0}
    model = gsebo.GSEBO(**network(name), **common, **options)
    found = check_hypergradient(model, typed_graph(6), directions=2)
    assert bool((found.numeric != 0).all())
    found.raise_if_worse_than(2e-5)


@pytest.mark.parametrize("name", [*MODULES, "relational-gcn"])
def test_a_strength_is_that_of_the_edge(name: str) -> None:
    """In a single layer only the edges into a node have a say in what it is."""
    backbone = module(name, 1) if name in MODULES else name
    # Of relation r, edges are known by the numbers of all nodes; they come shuffled.
    graph = shuffled(typed_graph(6, dtype=torch.float64))
    model = gsebo.GSEBO(backbone, num_layers=1, hidden_channels=4, random_state=0)
    problem = problem_of(model, graph)
    where, outer = problem.graph, problem.initial_outer()
    strengths = problem.strengths(outer).detach().requires_grad_()
    weights = problem.named_weights(problem.initial_weights())
    logits = torch.func.functional_call(
        problem.backbone, weights, (problem.features, where.pattern, strengths, None)
    )
    slope = torch.linspace(1, 2, logits.shape[1], dtype=logits.dtype)
    edges = where.graph.edge_index
    authors = (graph.node_type == 0).nonzero().squeeze(-1)
    for node in authors.tolist():
        (found,) = torch.autograd.grad(
            logits[node] @ slope, strengths, retain_graph=True
        )
        assert torch.equal(found[: where.num_edges].abs() > 1e-14, edges[1] == node)


def shuffled(data: HeteroData, seed: int = 3) -> Graph:
    """All edges in one list, in an order that no relation keeps."""
    graph = as_graph(data)
    rng = torch.Generator().manual_seed(seed)
    return with_edges(graph, torch.randperm(graph.num_edges, generator=rng))


def with_edges(graph: Graph, chosen: Tensor) -> Graph:
    """The graph with some of its edges, in this order."""
    other = copy.copy(graph)
    other.edge_index = graph.edge_index[:, chosen]
    other.edge_type = graph.edge_type[chosen]
    return other


# --- the plain path -------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("name", [*READS_TYPES, "retrain", "dropedge"])
def test_one_type_and_one_relation_are_none(name: str) -> None:
    plain = small_graph()
    options = {"max_epochs": 6} if name == "auto" else {}
    model, typed = (
        quick(name, **options).fit(each) for each in (plain, one_type(plain))
    )
    assert torch.equal(model.probability_, typed.probability_)
    assert torch.equal(model.strength_, typed.strength_)
    for each in (plain, one_type(plain)):
        assert torch.equal(typed.predict_proba(each), model.predict_proba(plain))


def test_edge_weights_of_one_relation_are_none_either() -> None:
    plain = small_graph()
    plain.edge_weight = torch.linspace(0.5, 2, plain.num_edges)
    models = [quick("gsebo").fit(each) for each in (plain, one_type(plain))]
    assert torch.equal(models[0].strength_, models[1].strength_)
    assert torch.equal(models[0].probability_, models[1].probability_)


# Networks without relations, and no evidence of them.
WITHOUT = {
    "vanilla": {},
    "train_val": {},
    "frozen": {},
    "single_level": {},
    "mlp": {},
    "gsebo": {},
    "amortised": {"predictions": "none", "evidence": "cosine,rarity,common"},
}


@pytest.mark.exact
@pytest.mark.parametrize("name", WITHOUT)
def test_a_network_without_relations_sees_a_graph_without_types(
    name: str, data: HeteroData
) -> None:
    graph = as_graph(data)
    # Without the relation that joins what another one joins.
    graph = with_edges(graph, (graph.edge_type < 5).nonzero().squeeze(-1))
    typed = quick(name, **WITHOUT[name]).fit(graph)
    plain = quick(name, **WITHOUT[name]).fit(graph.without_types())
    assert torch.equal(typed.probability_, plain.probability_)
    assert torch.equal(typed.strength_, plain.strength_)


def test_two_relations_between_the_same_nodes_are_two_edges() -> None:
    graph = as_graph(typed_graph(dtype=torch.float64))
    pairs = graph.edge_index[0] * graph.num_nodes + graph.edge_index[1]
    _, place, times = np.unique(pairs.numpy(), return_index=True, return_counts=True)
    assert set(times) == {1, 2}
    once = with_edges(graph, torch.from_numpy(place)).without_types()
    once.edge_weight = torch.from_numpy(times).double()
    typed, plain = (quick("vanilla").fit(each) for each in (graph, once))
    torch.testing.assert_close(typed.probability_, plain.probability_, **CLOSE)
    # Each has half the strength that both have, and one of its own to learn.
    half = typed.strength_[torch.from_numpy(place)] * once.edge_weight
    torch.testing.assert_close(half, plain.strength_, **CLOSE)
    learned = calm("gsebo").fit(graph).strength_
    knows, cites = (graph.edge_type == number for number in (4, 5))
    both = torch.isin(pairs[knows], pairs[cites])
    assert int(both.sum()) == int(cites.sum())
    relational = calm("gsebo", backbone="relational-gcn").fit(graph).strength_
    for found, differ in ((learned, False), (relational, True)):
        order = [pairs[chosen].argsort() for chosen in (knows, cites)]
        one = found[knows][order[0]]
        one = one[torch.isin(pairs[knows][order[0]], pairs[cites])]
        other = found[cites][order[1]]
        assert bool((one != other).any()) == differ


# --- the user's order, names and numbers ----------------------------------------------


@pytest.mark.parametrize("per_layer", [False, True])
def test_strengths_are_given_back_by_relation(
    data: HeteroData, per_layer: bool
) -> None:
    before = copy.deepcopy(data.to_dict())
    model = quick("gsebo", backbone="relational-gcn", per_layer=per_layer).fit(data)
    assert isinstance(model.graph_, HeteroData)
    assert model.graph_.node_types == data.node_types
    assert model.graph_.edge_types == data.edge_types
    shown = [model.graph_[each].edge_strength for each in RELATIONS]
    assert torch.equal(torch.cat(shown).movedim(0, -1), model.strength_)
    assert not torch.equal(model.strength_, model.initial_strength_)
    for each in RELATIONS:
        assert torch.equal(model.graph_[each].edge_index, data[each].edge_index)
    # Nothing was written into the user's graph.
    for name, store in before.items():
        for key, value in store.items() if isinstance(store, dict) else ():
            now = data[name][key]
            assert (
                torch.equal(now, value) if isinstance(value, Tensor) else now == value
            )
    assert "edge_strength" not in data["author", "knows", "author"]


def by_edge(model: GraphClassifier, graph: Graph) -> dict[tuple[int, ...], float]:
    """Strength of each edge of a user, by its ends and its relation."""
    rows = torch.cat([graph.edge_index, graph.edge_type.unsqueeze(0)]).T.tolist()
    strengths = model.strength_.tolist()
    return {tuple(row): each for row, each in zip(rows, strengths, strict=True)}


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        ("vanilla", "han"),
        ("gsebo", "relational-gcn"),
        ("gsebo", "gcn"),
        ("amortised", "relational-gcn"),
    ],
)
def test_edges_may_come_in_any_order(name: str, backbone: str) -> None:
    graph = as_graph(typed_graph(9))
    mixed = shuffled(typed_graph(9))
    # One that is given twice is one, and a self-loop is the network's own.
    again = copy.copy(mixed)
    more = torch.tensor([[2], [2]]), torch.tensor([4])
    again.edge_index = torch.cat(
        [mixed.edge_index, mixed.edge_index[:, :3], more[0]], 1
    )
    again.edge_type = torch.cat([mixed.edge_type, mixed.edge_type[:3], more[1]])
    models = [
        quick(name, backbone=backbone).fit(each) for each in (graph, mixed, again)
    ]
    for other in models[1:]:
        assert torch.equal(models[0].probability_, other.probability_)
    first, second, third = (
        by_edge(model, each)
        for model, each in zip(models, (graph, mixed, again), strict=True)
    )
    assert first == second
    loop = third.pop((2, 2, 4))
    assert first == third
    assert loop == float(models[2].loop_strength_[2])


@pytest.mark.exact
@pytest.mark.parametrize("name", ["gsebo", "amortised", "hgsl"])
def test_names_say_nothing(name: str, data: HeteroData) -> None:
    graph = as_graph(data)
    renamed = copy.copy(graph)
    called = dict(zip(TYPES, ("z", "y", "x"), strict=True))
    renamed.meta = {
        **graph.meta,
        "node_types": [called[each] for each in TYPES],
        "edge_types": [[called[a], f"r{b}", called[c]] for a, b, c in RELATIONS],
        "target": "z",
    }
    renamed.meta.pop("without_features", None)
    # Numbers alone do as well.
    bare = copy.copy(graph)
    bare.meta = {"columns": graph.meta["columns"]}
    backbone = {} if name == "hgsl" else {"backbone": "relational-gcn"}
    models = [quick(name, **backbone).fit(each) for each in (graph, renamed, bare)]
    for other in models[1:]:
        assert torch.equal(models[0].probability_, other.probability_)
        assert torch.equal(models[0].strength_, other.strength_)


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        ("vanilla", "han"),
        ("gsebo", "relational-gcn"),
        ("gsebo", "han"),
        ("amortised", "relational-gcn"),
    ],
)
def test_nodes_may_have_other_numbers(name: str, backbone: str) -> None:
    data = typed_graph(9, dtype=torch.float64)
    other, orders = permuted_nodes(data)
    first, second = (calm(name, backbone=backbone).fit(each) for each in (data, other))
    kind = as_graph(data).node_type
    for number, type_name in enumerate(TYPES):
        torch.testing.assert_close(
            first.probability_[kind == number][orders[type_name]],
            second.probability_[kind == number],
            **CLOSE,
        )
    for each in RELATIONS:
        torch.testing.assert_close(
            first.graph_[each].edge_strength,
            second.graph_[each].edge_strength,
            **CLOSE,
        )


def renumbered(graph: Graph, types: list[int], relations: list[int]) -> Graph:
    """The same graph with other numbers of types and relations.

    ``types[k]`` and ``relations[k]`` are those that get the number ``k``.
    """
    other = copy.copy(graph)
    other.node_type = torch.tensor(types).argsort()[graph.node_type]
    other.edge_type = torch.tensor(relations).argsort()[graph.edge_type]
    meta = dict(graph.meta)
    for key, order in (
        ("node_types", types),
        ("columns", types),
        ("edge_types", relations),
    ):
        meta[key] = [meta[key][number] for number in order]
    other.meta = meta
    return other


TURNED = [2, 0, 1], [3, 5, 0, 4, 1, 2]


@pytest.mark.parametrize("name", ["vanilla", "gsebo", "amortised"])
def test_types_and_relations_may_have_other_numbers(name: str) -> None:
    graph = as_graph(typed_graph(12, dtype=torch.float64))
    other = renumbered(graph, *TURNED)
    # The columns of evidence that depend on numbers are drawn in another order.
    options = {"evidence": "cosine,common"} if name == "amortised" else {}
    first, second = (calm(name, **options).fit(each) for each in (graph, other))
    torch.testing.assert_close(first.probability_, second.probability_, **CLOSE)
    torch.testing.assert_close(first.strength_, second.strength_, **CLOSE)


@pytest.mark.parametrize("name", ["relational gcn", "of bases", "han"])
def test_so_they_may_for_networks_with_the_same_weights(name: str) -> None:
    graph = as_graph(typed_graph(8, dtype=torch.float64))
    other = renumbered(graph, *TURNED)
    model = gsebo.GSEBO(**network(name), hidden_channels=4, dropout=0.0, random_state=0)
    one, two = problem_of(model, graph), problem_of(model, other)
    named = dict(one.backbone.named_parameters())
    order = torch.tensor(TURNED[1])
    with torch.no_grad():
        for key, weight in two.backbone.named_parameters():
            kind = key.split(".")[0]
            moved = kind in ("shares", "attentions")
            moved |= kind == "bases" and name == "relational gcn"
            weight.copy_(named[key][order] if moved else named[key])
    found = [hypergradient_of(each) for each in (one, two)]
    # Of the edges of the user, in one order.
    loops = torch.zeros(graph.num_nodes, dtype=torch.float64)
    of_edges = [
        each.graph.graph.to_user_order(change[: each.graph.num_edges], loops)
        for each, change in zip((one, two), found, strict=True)
    ]
    assert bool(of_edges[0].any())
    torch.testing.assert_close(*of_edges, **CLOSE)
    loops = [change[-graph.num_nodes :] for change in found]
    torch.testing.assert_close(*loops, **CLOSE)


def hypergradient_of(problem: NodeClassification) -> Tensor:
    optimizer = make_optimizer("sgd", 0.5)
    engine = make_hypergradient("reverse", direct_term=False)
    start = begin(optimizer, problem.initial_weights())
    outer = problem.initial_outer()
    return engine.run(problem, optimizer, start, outer, 3).gradient["change"]


# --- what learns, and what refuses ----------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_method_fits_or_says_what_else_there_is(
    name: str, data: HeteroData
) -> None:
    model = quick(name)
    if name in READS_TYPES:
        model.fit(data)
        assert model.probability_.shape == (93, 3)
        assert model.strength_.shape == (440,)
        assert isinstance(model.graph_, HeteroData)
        assert torch.equal(model.predict_proba(data), model.probability_)
        assert 0 <= model.score(data) <= 1
        return
    with pytest.raises(InvalidInput) as caught:
        model.fit(data)
    message = str(caught.value)
    assert message.startswith(f"{type(model).__name__} given a graph with 3 types")
    assert "graph.without_types()" in message and "'vanilla'" in message
    assert "\n" not in message
    model.fit(as_graph(data).without_types())


def test_types_are_read_by_those_who_should() -> None:
    expected = "gsebo amortised vanilla frozen train_val single_level auto mlp hgsl"
    assert set(READS_TYPES) >= set(expected.split())


REFUSED = {
    "gsebo, batches": ("gsebo", {"batch_size": 8}, "or no batch_size"),
    "amortised, batches": ("amortised", {"batch_size": 8}, "or no batch_size"),
    "gsebo, tied": ("gsebo", {"tied": True}, "expected tied=False"),
    "structure, tied": (
        "gsebo",
        {"structure": EdgeStrength(tied=True)},
        "expected tied=False",
    ),
    "single level, tied": ("single_level", {"tied": True}, "expected tied=False"),
    "candidates": ("amortised", {"candidates": 2}, "expected candidates=0"),
    "no refit": ("amortised", {"refit": False}, "expected refit=True"),
    "auto of others": ("auto", {"methods": "vanilla,dropedge"}, "DropEdge given"),
    "auto, inoculated": ("auto", {"methods": "mlp,inoculated"}, "Inoculated given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_know_one_relation_are_refused(
    case: str, data: HeteroData
) -> None:
    name, options, message = REFUSED[case]
    with pytest.raises(InvalidInput, match=message) as caught:
        quick(name, **options).fit(data)
    assert "\n" not in str(caught.value)


def test_a_folder_has_no_types(data: HeteroData, tmp_path: Path) -> None:
    from gsebo.data.formats.folder import write_folder

    with pytest.raises(
        InvalidInput, match="3 types of nodes and 6 relations"
    ) as caught:
        write_folder(data, tmp_path / "graph")
    assert "\n" not in str(caught.value)
    # A model of types reads no graph without.
    model = quick("vanilla", backbone="relational-gcn").fit(data)
    folder = write_folder(as_graph(data).without_types(), tmp_path / "graph")
    with pytest.raises(InvalidInput, match="expected types author, paper, venue"):
        model.predict(folder)


def test_models_of_types_are_no_single_module(data: HeteroData) -> None:
    with pytest.raises(InvalidInput, match="a module is called with one edge_index"):
        quick("vanilla", backbone="relational-gcn").fit(data).to_module()


def test_a_model_of_types_is_refused_where_there_is_one() -> None:
    for name in MODULES:
        with pytest.raises(InvalidInput, match="expected a graph with several"):
            quick("vanilla", backbone=module(name)).fit(small_graph())


LEARNS: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {"max_epochs": 40}),
    "gsebo": ("gsebo", {"max_outer_steps": 12, "inner_steps": 5}),
    "amortised": ("amortised", {"max_outer_steps": 8, "refit_epochs": 40}),
    "gsebo, few labels": ("gsebo", {"max_outer_steps": 10, "labels": "train"}),
    "amortised, few labels": (
        "amortised",
        {"max_outer_steps": 8, "refit_epochs": 40, "labels": "train"},
    ),
    "taught by all nodes": ("vanilla", {"max_epochs": 40, "consistency": 1.0}),
}


@pytest.mark.parametrize(
    ("case", "backbone"),
    [
        *((case, "relational-gcn") for case in LEARNS),
        ("vanilla", "han"),
        ("gsebo", "han"),
    ],
)
def test_fits_are_above_chance(case: str, backbone: str) -> None:
    name, options = LEARNS[case]
    data = typed_graph(36, seed=4)
    model = quick(name, **options, backbone=backbone, inner_lr=0.05).fit(data)
    assert model.score(data) > 0.6


def test_auto_chooses_on_a_typed_graph() -> None:
    """Also where edges look as if they were attacked: there is nothing to plant."""
    data = typed_graph(40, false=0.3, seed=1)
    options = {"methods": "vanilla,mlp,gsebo,amortised", "max_epochs": 30}
    model = quick("auto", **options, backbone="relational-gcn").fit(data)
    assert {each["candidate"] for each in model.choice_} == set(
        options["methods"].split(",")
    )
    assert model.shift_ == 0
    assert torch.equal(model.predict_proba(data), model.probability_)


def test_auto_with_few_labels_chooses_on_a_typed_graph(data: HeteroData) -> None:
    options = {"methods": "vanilla,amortised", "labels": "train", "max_epochs": 20}
    model = quick("auto", **options, backbone="relational-gcn").fit(data)
    assert torch.equal(model.predict_proba(data), model.probability_)


def test_only_nodes_that_have_classes_are_taught_to_agree(data: HeteroData) -> None:
    graph = as_graph(data)
    # Without edges what papers are has no part in what authors are.
    model = gsebo.GSEBO("mlp", consistency=1.0, random_state=0)
    problem = problem_of(model, graph)
    at = problem.initial_weights(), problem.initial_outer(), 0
    losses = [problem.inner_loss(*at)]
    for number in (0, 1):
        changed = copy.copy(graph)
        other = (graph.node_type == number).unsqueeze(-1)
        changed.x = torch.where(other, 3 * graph.x.to_dense(), graph.x.to_dense())
        losses.append(problem_of(model, changed).inner_loss(*at))
    torch.testing.assert_close(losses[2], losses[0])
    assert not torch.allclose(losses[1], losses[0])


@pytest.mark.parametrize("backbone", ["relational-gcn", "gcn"])
def test_a_replica_is_a_fit_of_its_own(data: HeteroData, backbone: str) -> None:
    both = quick("gsebo", backbone=backbone).fit(data, replicas=2).replicas_
    alone = quick("gsebo", backbone=backbone, random_state=1).fit(data)
    assert isinstance(both[1].graph_, HeteroData)
    assert_same_fit(both[1], alone)


# --- which edges are wrong ------------------------------------------------------------


@cache
def noisy(seed: int = 0) -> tuple[HeteroData, Tensor]:
    """A graph a quarter of whose edges join two classes, and which those are."""
    data = typed_graph(40, false=0.25, seed=seed)
    return data, torch.cat([data[each].is_false for each in RELATIONS])


def area(score: Any, is_false: Tensor) -> float:
    return float(roc_auc_score(is_false, np.asarray(score)))


def test_suspicious_edges_of_a_typed_graph() -> None:
    data, is_false = noisy()
    found = gsebo.SuspiciousEdges(rounds=1, random_state=0).fit(data)
    score, kind = found.decision_score_, as_graph(data).edge_type
    assert area(score, is_false) > 0.75
    # In each relation, not only by telling relations apart.
    for number in range(len(RELATIONS)):
        chosen = kind == number
        assert area(score[chosen], is_false[chosen]) > 0.65
    cleaned = found.clean_graph(data)
    assert isinstance(cleaned, HeteroData)
    assert cleaned.edge_types == data.edge_types


def test_planted_typed_edges_are_found() -> None:
    clean = as_graph(typed_graph(40, seed=2))
    planted = add_false_typed_edges(clean, 20, seed=0)
    is_false = torch.arange(planted.num_edges) >= clean.num_edges
    found = gsebo.SuspiciousEdges(rounds=1, random_state=0).fit(planted)
    # A third of those that are drawn join one class, as right ones do.
    assert area(found.decision_score_, is_false) > 0.7


def test_missing_edges_are_refused(data: HeteroData) -> None:
    with pytest.raises(InvalidInput, match=r"expected graph\.without_types") as caught:
        gsebo.missing_edges(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backbone", ["relational-gcn", "gcn"])
def test_agreement_of_edges_is_told_by_nodes_with_classes(backbone: str) -> None:
    data, is_false = noisy()
    options = {"max_outer_steps": 10, "refit_epochs": 60, "inner_lr": 0.05}
    model = quick("amortised", backbone=backbone, **options).fit(data)
    frame = model.edges_frame()
    kind = as_graph(data).edge_type
    assert list(frame["relation"].unique()) == ["-".join(each) for each in RELATIONS]
    for number in range(len(RELATIONS)):
        chosen = (kind == number).numpy()
        found = area(-frame["agreement"][chosen], is_false[chosen])
        assert found > 0.7
    kept = model.clean_graph(threshold=0.3, by="agreement")
    assert isinstance(kept, HeteroData)
    assert kept.num_edges < data.num_edges
    assert kept.edge_types == data.edge_types
