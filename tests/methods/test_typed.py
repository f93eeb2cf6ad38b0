"""Methods, networks and models on graphs with several types of nodes and relations."""

from __future__ import annotations

import copy
import random
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    GATConv,
    HeteroConv,
    HGTConv,
    Linear,
    SAGEConv,
    to_hetero,
)

import gsebo
from gsebo import InputWarning, InvalidInput, check_hypergradient, load_model
from gsebo.bilevel import begin, make_hypergradient, make_optimizer
from gsebo.data.noise.typed import add_false_typed_edges
from gsebo.graph import Graph
from gsebo.graph.graph import as_graph
from gsebo.methods import METHODS, GraphClassifier
from gsebo.structure import EdgeStrength
from gsebo.training import Checkpoint, NodeClassification

from .examples import (
    NAMES,
    assert_same_fit,
    calm,
    problem_of,
    quick,
    small_graph,
)
from .saved import (
    assert_refused,
    assert_same_model,
    change_facts,
    change_tensors,
    everything,
    facts_of,
    same,
)
from .typed_graphs import RELATIONS, TYPES, one_type, permuted_nodes, typed_graph

READS_TYPES = [name for name, info in METHODS.items() if info.estimator.reads_types]
METADATA = (list(TYPES), list(RELATIONS))
CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return typed_graph()


# --- networks of a user ---------------------------------------------------------------


class HGT(nn.Module):
    """Two layers, of which the last says what authors are."""

    def __init__(self, layers: int = 2, width: int = 4) -> None:
        super().__init__()
        self.read = nn.ModuleDict({name: Linear(-1, width) for name in TYPES})
        self.layers = nn.ModuleList(
            HGTConv(width, width, METADATA, heads=2) for _ in range(layers)
        )
        self.out = Linear(width, 3)

    def forward(self, x_dict: dict, edge_index_dict: dict) -> Tensor:
        h = {name: self.read[name](x).tanh() for name, x in x_dict.items()}
        for layer in self.layers:
            h = layer(h, edge_index_dict)
        return self.out(h["author"])


class Convolutions(nn.Module):
    """A convolution of its own for each relation, with attention in one of them."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        own: dict[str, Callable[[int], nn.Module]] = {
            "in": lambda width: GATConv((-1, -1), width, add_self_loops=False),
            "knows": lambda width: GATConv(-1, width),
        }
        self.layers = nn.ModuleList(
            HeteroConv(
                {
                    each: own.get(each[1], lambda width: SAGEConv((-1, -1), width))(
                        3 if layer == layers - 1 else 5
                    )
                    for each in RELATIONS
                }
            )
            for layer in range(layers)
        )

    def forward(self, x_dict: dict, edge_index_dict: dict) -> dict:
        h = x_dict
        for layer in self.layers:
            h = {name: each.tanh() for name, each in layer(h, edge_index_dict).items()}
        return h


class Plain(nn.Module):
    """What a user writes for one type, and gives to ``to_hetero``."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        widths = [5] * (layers - 1) + [3]
        self.layers = nn.ModuleList(SAGEConv((-1, -1), width) for width in widths)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x


def module(name: str, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    if name == "to_hetero":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyG says which types hear nothing.
            return to_hetero(Plain(layers), METADATA)
    return {"HGT": HGT, "HeteroConv": Convolutions}[name](layers)


MODULES = ("HGT", "HeteroConv", "to_hetero")
NETWORKS: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "relational gcn": ("relational-gcn", None),
    "of bases": ("relational-gcn", {"num_bases": 2}),
    "han": ("han", {"heads": 2, "relation_channels": 3}),
}


def network(name: str) -> dict[str, Any]:
    """Parameters of an estimator that name a network."""
    if name in MODULES:
        return {"backbone": module(name)}
    backbone, options = NETWORKS.get(name, (name, None))
    return {"backbone": backbone, "backbone_options": options}


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
    model = fitted("vanilla, relational")
    folder = write_folder(as_graph(data).without_types(), tmp_path / "graph")
    with pytest.raises(InvalidInput, match="expected types author, paper, venue"):
        model.predict(folder)


def test_models_of_types_are_no_single_module(data: HeteroData) -> None:
    with pytest.raises(InvalidInput, match="a module is called with one edge_index"):
        fitted("vanilla, relational").to_module()


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
    whole, draw = everything(load_model(folder)), random.Random(0)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in {0, 8, 100, *(draw.randrange(len(content)) for _ in range(6))}:
            damaged = bytearray(content)
            damaged[place] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            try:
                found = everything(load_model(folder))
            except InvalidInput as error:
                assert "\n" not in str(error)
            else:
                assert same(found, whole), f"byte {place} of {path.name}"
        path.write_bytes(content)
