"""HGSL: its graphs and its loss against dense matrices, from the formulas."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo import InvalidInput, load_model
from gsebo.bilevel import Tree
from gsebo.data import validate
from gsebo.data.validate import sized
from gsebo.graph import Graph
from gsebo.graph.graph import as_graph
from gsebo.methods.baselines.hgsl import hgsl
from gsebo.methods.baselines.hgsl.hgsl import HGSL, HGSLProblem, chosen_embeddings
from gsebo.methods.fitting import PreparedGraph, make_task
from gsebo.sparse import SparseFeatures

from .examples import quick, small_graph
from .typed_graphs import RELATIONS, one_type, typed_graph

PATHS = {"metapath:apa": 5, "metapath:apvpa": 3}
SETTINGS: dict[str, Any] = {
    "hidden_channels": 4,
    "dropout": 0.0,
    "projection": 3,
    "weight_decay": 0.01,
    "sparsity": 0.7,
    "feature_threshold": 0.5,
    "propagation_threshold": 0.3,
    "metapath_threshold": 0.2,
}
# Of the relations of the small graph two are others turned round.
READ = (0, 2, 4, 5)


def small(authors: int = 8, *, paths: bool = True, weights: bool = False) -> Graph:
    """A typed graph in float64 with embeddings, some of whose rows are empty."""
    graph = as_graph(typed_graph(authors, dtype=torch.float64))
    rng = torch.Generator().manual_seed(2)
    for name, width in PATHS.items() if paths else ():
        shape = (graph.num_nodes, width)
        graph[name] = torch.randn(shape, generator=rng, dtype=torch.float64)
        graph[name][5:7] = 0
    if weights:
        drawn = torch.rand(graph.num_edges, generator=rng) + 0.5
        for one, other in ((0, 1), (2, 3)):
            drawn[graph.edge_type == other] = drawn[graph.edge_type == one]
        graph.edge_weight = drawn
    return graph


def problem_of(graph: Graph, **changes: Any) -> HGSLProblem:
    validate(graph)
    method = HGSL(**SETTINGS | changes)
    prepared = PreparedGraph(sized(graph), torch.device("cpu"))
    task = make_task(prepared, method.network(), weight_decay=0.01, seed=3)
    return HGSLProblem(task, method, chosen_embeddings(graph, method.metapaths))


def anywhere(tree: Tree, seed: int = 0) -> Tree:
    """Numbers that no initialisation would give, of scores too."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(leaf.shape, generator=rng, dtype=leaf.dtype)
        for name, leaf in tree.items()
    }


# --- from the formulas, by dense matrices --------------------------------------------


def psi(a: Tensor, b: Tensor, weights: Tensor, threshold: float) -> Tensor:
    """Mean of cosines under weights of the channels; too small ones are nothing."""
    cosines = []
    for w in weights:
        left, right = w * a, w * b
        lengths = left.norm(dim=1)[:, None] * right.norm(dim=1)[None]
        cosines.append(left @ right.T / torch.where(lengths > 0, lengths, 1))
    mean = torch.stack(cosines).mean(0)
    return torch.where(mean >= threshold, mean, 0)


def attention(graphs: list[Tensor], scores: Tensor, axis: int) -> Tensor:
    """Softmax-weighted sum of graphs whose rows, or columns, are divided by sums."""
    found = torch.zeros_like(graphs[0])
    for graph, share in zip(graphs, scores.softmax(0), strict=True):
        sums = graph.sum(axis, keepdim=True)
        found = found + share * graph / torch.where(sums > 0, sums, 1)
    return found


class Dense:
    """All of HGSL as matrices ``[nodes, nodes]``; the same outer variables."""

    def __init__(self, graph: Graph, problem: HGSLProblem) -> None:
        self.graph, self.problem, self.method = graph, problem, problem.method
        size, edges = graph.num_nodes, graph.edge_index
        self.x = graph.x.to_dense()
        self.kind = graph.node_type
        weight = torch.ones(graph.num_edges, dtype=torch.float64)
        if "edge_weight" in graph:
            weight = graph.edge_weight.double()
        if self.method.compat:
            squares = torch.zeros(size, dtype=torch.float64)
            squares = squares.index_add(0, edges[0], weight.square())
            weight = weight / squares.sqrt()[edges[0]]
        self.given = []
        for number in READ:
            chosen = graph.edge_type == number
            matrix = torch.zeros(size, size, dtype=torch.float64)
            matrix[tuple(edges[:, chosen])] = weight[chosen]
            ends = (RELATIONS[number][place] for place in (0, 2))
            types = [graph.meta["node_types"].index(name) for name in ends]
            nodes = [(self.kind == each).nonzero().squeeze(-1) for each in types]
            self.given.append((matrix, types, nodes))

    def mixtures(self, outer: Tree) -> list[Tensor]:
        """A'_r of each relation, heads by tails."""
        return [self.mixture(number, outer) for number in range(len(READ))]

    def mixture(self, number: int, outer: Tree) -> Tensor:
        method, name = self.method, f"relation{number}"
        matrix, types, (heads, tails) = self.given[number]
        given = matrix[heads][:, tails]
        # The authors normalise columns, and so it is tails that come first.
        axis, first, second = (
            (0, "tails", "heads") if method.compat else (1, "heads", "tails")
        )
        near, far = method.propagation_threshold, method.feature_threshold
        seen = [
            (self.x[nodes] @ outer[f"weight{kind}"] + outer[f"bias{kind}"]).relu()
            for nodes, kind in zip((heads, tails), types, strict=True)
        ]
        of_heads = psi(self.x[heads], self.x[heads], outer[f"{name}.{first}"], near)
        of_tails = psi(self.x[tails], self.x[tails], outer[f"{name}.{second}"], near)
        around = [of_heads @ given, given @ of_tails]
        if method.compat:
            around.reverse()
        similar = psi(*seen, outer[f"{name}.direct"], far)
        scores = outer[f"{name}.by_features"]
        parts = [attention([similar, *around], scores, axis)]
        along = []
        for path in [path for path in PATHS if path in self.graph]:
            z = self.graph[path]
            if method.compat:
                z = torch.where((z == 0).all(1, keepdim=True), 1, z)
            weights, least = outer[f"{name}.{path}"], method.metapath_threshold
            along.append(psi(z[heads], z[tails], weights, least))
        if along:
            parts.append(attention(along, outer[f"{name}.by_metapaths"], axis))
        return attention([*parts, given], outer[f"{name}.overall"], axis)

    def normalised(self, outer: Tree) -> Tensor:
        size = self.graph.num_nodes
        whole = torch.zeros(size, size, dtype=torch.float64)
        for number, mixture in enumerate(self.mixtures(outer)):
            heads, tails = self.given[number][2]
            placed = torch.zeros_like(whole)
            place = heads[:, None] * size + tails[None]
            placed = placed.flatten().index_add(0, place.flatten(), mixture.flatten())
            whole = whole + placed.view_as(whole) + placed.view_as(whole).T
        if self.method.compat:
            sums = whole.sum(0, keepdim=True)
            return whole / torch.where(sums > 0, sums, 1)
        looped = whole + torch.eye(size, dtype=torch.float64)
        root = looped.sum(1).rsqrt()
        return root[:, None] * looped * root

    def logits(self, weights: Tree, outer: Tree) -> Tensor:
        first, first_bias, second, second_bias = self.problem.task.named_weights(
            weights
        ).values()
        step = self.normalised(outer)
        hidden = (step @ (self.x @ first) + first_bias).relu()
        return step @ (hidden @ second) + second_bias

    def loss(self, weights: Tree, outer: Tree) -> Tensor:
        chosen = self.graph.train_mask
        loss = cross_entropy(self.logits(weights, outer)[chosen], self.graph.y[chosen])
        learned = [*weights.values(), *outer.values()]
        squares = torch.stack([leaf.square().sum() for leaf in learned]).sum()
        loss = loss + 0.01 / 2 * squares
        if self.method.compat:
            return loss
        total = torch.stack([each.abs().sum() for each in self.mixtures(outer)]).sum()
        return loss + self.method.sparsity * total


def gradients(loss: Tensor, trees: list[Tree]) -> dict[str, Tensor]:
    named = {name: leaf for tree in trees for name, leaf in tree.items()}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if each is None else each
        for (name, leaf), each in zip(named.items(), found, strict=True)
    }


def leaves(tree: Tree) -> Tree:
    return {name: leaf.clone().requires_grad_() for name, leaf in tree.items()}


CASES = {
    "paper": {},
    "no metapaths": {"paths": False},
    "weights": {"weights": True},
    "one head": {"num_heads": 1},
    "nothing is too little": {
        "feature_threshold": 0.0,
        "propagation_threshold": 0.0,
        "metapath_threshold": 0.0,
    },
    "all is too little": {
        "feature_threshold": 0.999,
        "propagation_threshold": 0.999,
        "metapath_threshold": 0.999,
    },
    "authors": {"compat": True},
    "authors, weights": {"compat": True, "weights": True},
    "authors, no metapaths": {"compat": True, "paths": False},
}


def made(case: str) -> tuple[Graph, dict[str, Any]]:
    options = dict(CASES[case])
    of_graph = {key: options.pop(key) for key in ("paths", "weights") if key in options}
    return small(**of_graph), options


@pytest.mark.parametrize("stored", ["few", "all", "as it is"])
@pytest.mark.parametrize("case", CASES)
def test_graph_loss_and_derivatives_by_dense_matrices(
    case: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether similarities are kept by their entries or as matrices.
    share = {"few": 2.0, "all": 0.0}.get(stored, hgsl._FEW)
    monkeypatch.setattr(hgsl, "_FEW", share)
    graph, options = made(case)
    problem = problem_of(graph, **options)
    count = {"few": len(problem.similarities), "all": 0}
    assert len(problem.few) == count.get(stored, len(problem.few))
    dense = Dense(graph, problem)
    weights = leaves(anywhere(problem.initial_weights()))
    outer = leaves(anywhere(problem.initial_outer(), 1))
    size = graph.num_nodes
    found = problem.mixed(outer) @ torch.eye(size, dtype=torch.float64)
    torch.testing.assert_close(found, dense.normalised(outer))
    torch.testing.assert_close(
        problem.scores(weights, outer), dense.logits(weights, outer)
    )
    loss, expected = problem.loss(weights, outer, 0), dense.loss(weights, outer)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (gradients(each, [weights, outer]) for each in (loss, expected))
    for name, each in theirs.items():
        torch.testing.assert_close(ours[name], each, rtol=1e-6, atol=1e-9)
    # Embeddings and features decide with the scores, unless all is too little.
    if case in ("paper", "authors"):
        assert all(bool((each != 0).any()) for each in theirs.values())


@pytest.mark.parametrize("compat", [False, True])
def test_the_graph_that_predicts_is_the_dense_one(compat: bool) -> None:
    graph = small()
    problem = problem_of(graph, compat=compat)
    outer, weights = anywhere(problem.initial_outer(), 1), problem.initial_weights()
    (member,) = problem.members(weights, outer)
    pattern, strengths = member.propagation
    size = graph.num_nodes
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = strengths
    torch.testing.assert_close(
        matrix, Dense(graph, problem).normalised(outer), rtol=0, atol=1e-6
    )


def test_the_penalty_teaches_nothing_in_the_authors_program() -> None:
    graph = small()
    for compat in (False, True):
        losses = []
        for sparsity in (0.0, 2.0):
            problem = problem_of(graph, compat=compat, sparsity=sparsity)
            outer = anywhere(problem.initial_outer(), 1)
            losses.append(problem.loss(problem.initial_weights(), outer, 0))
        assert torch.equal(*losses) == compat


def test_a_relation_and_its_reverse_are_read_once() -> None:
    graph = small()
    problem = problem_of(graph)
    assert len(problem.relations) == len(READ)
    # Without the reverse ones, with them first, and with edges in any order.
    bare, less, shuffled = copy(graph), copy(graph), copy(graph)
    kept = torch.isin(graph.edge_type, torch.tensor(READ))
    bare.edge_index, bare.edge_type = graph.edge_index[:, kept], graph.edge_type[kept]
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(1))
    shuffled.edge_index = graph.edge_index[:, order]
    shuffled.edge_type = graph.edge_type[order]
    outer, weights = problem.initial_outer(), problem.initial_weights()
    expected = problem.loss(weights, outer, 0)
    for other in (bare, shuffled):
        again = problem_of(other)
        assert len(again.relations) == len(READ)
        torch.testing.assert_close(again.loss(weights, outer, 0), expected)
    # One edge less, and it is the reverse of nothing.
    missing = (graph.edge_type == 1).nonzero()[0, 0]
    kept = torch.arange(graph.num_edges) != missing
    less.edge_index, less.edge_type = graph.edge_index[:, kept], graph.edge_type[kept]
    assert len(problem_of(less).relations) == len(READ) + 1
    # Weights make a difference, too.
    weighted = small(weights=True)
    assert len(problem_of(weighted).relations) == len(READ)
    weighted.edge_weight[missing] += 1
    assert len(problem_of(weighted).relations) == len(READ) + 1


@pytest.mark.parametrize("compat", [False, True])
def test_sparse_features_are_the_same_numbers(compat: bool) -> None:
    graph = small()
    wide = copy(graph)
    x = torch.zeros(graph.num_nodes, 40, dtype=torch.float64)
    x[:, : graph.num_features] = graph.x.to_dense()
    wide.x, wide.meta = x, {**graph.meta, "columns": None}
    sparse, dense = problem_of(wide, compat=compat), problem_of(wide, compat=compat)
    assert isinstance(sparse.task.features, SparseFeatures)
    object.__setattr__(dense.task, "features", x)
    dense._stored = None
    weights, outer = sparse.initial_weights(), anywhere(sparse.initial_outer(), 2)
    losses = [each.loss(weights, outer, 0) for each in (sparse, dense)]
    torch.testing.assert_close(*losses)


def test_initial_variables() -> None:
    problem = problem_of(small())
    outer = problem.initial_outer()
    again = problem_of(small()).initial_outer()
    assert all(torch.equal(leaf, again[name]) for name, leaf in outer.items())
    for name, leaf in outer.items():
        if ".by_" in name or name.endswith(".overall"):
            # Channels count alike at first.
            assert not leaf.any()
        else:
            bound = 11**-0.5
            if not name.startswith(("weight", "bias")):
                bound = (6 / (1 + leaf.shape[1])) ** 0.5
            assert 0.5 * bound < float(leaf.abs().max()) <= bound


# --- fits ----------------------------------------------------------------------------

FAST: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 25,
    "evaluate_every": 5,
    "random_state": 0,
    "sparsity": 0.1,
    "feature_threshold": 0.8,
    "propagation_threshold": 0.5,
}


@pytest.mark.exact
@pytest.mark.parametrize("compat", [False, True])
def test_a_fit_is_above_chance_and_its_seed_decides_all(compat: bool, tmp_path) -> None:
    data = typed_graph(30, seed=1)
    model = HGSL(**FAST, compat=compat).fit(data)
    assert model.score(data) > 0.6
    again = HGSL(**FAST, compat=compat).fit(data)
    assert torch.equal(model.probability_, again.probability_)
    assert torch.equal(model.strength_, again.strength_)
    other = HGSL(**FAST | {"random_state": 1}, compat=compat).fit(data)
    assert not torch.equal(model.probability_, other.probability_)
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert torch.equal(found.predict_proba(data), model.predict_proba(data))
    assert torch.equal(found.new_edge_index_, model.new_edge_index_)


def test_embeddings_of_classes_make_a_difference() -> None:
    graph = as_graph(typed_graph(30, false=0.5, seed=2))
    accuracy = [HGSL(**FAST).fit(graph).score(graph)]
    authors = torch.zeros(graph.num_nodes, 3)
    authors[:30] = torch.nn.functional.one_hot(graph.y[:30], 3).float()
    graph["metapath:aa"] = authors
    for chosen in ("aa", "all"):
        accuracy.append(HGSL(**FAST, metapaths=chosen).fit(graph).score(graph))
    assert accuracy[0] + 0.2 < accuracy[1] == accuracy[2]


def test_one_type_and_one_relation_is_a_graph_without_types() -> None:
    plain = small_graph()
    models = [quick("hgsl").fit(each) for each in (plain, one_type(plain))]
    assert torch.equal(models[0].probability_, models[1].probability_)
    assert torch.equal(models[0].strength_, models[1].strength_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metapaths": "apa,nowhere"}, "no 'metapath:nowhere'; .* apa, apvpa"),
        ({"metapaths": 3}, "metapaths=3 given; expected names"),
        ({"metapaths": ""}, "no 'metapath:'"),
        ({"feature_threshold": 1.0}, "feature_threshold=1.0"),
        ({"propagation_threshold": -0.1}, "propagation_threshold=-0.1"),
        ({"metapath_threshold": "much"}, "metapath_threshold="),
        ({"num_heads": 0}, "num_heads=0"),
        ({"projection": 0}, "projection=0"),
        ({"sparsity": -1.0}, "sparsity=-1.0"),
        ({"compat": "yes"}, "compat='yes'"),
        ({"backbone": "gat"}, "backbone='gat' given; HGSL expected 'gcn'"),
        ({"backbone_options": {"residual": True}}, "expected None"),
    ],
)
def test_parameters_are_refused_in_one_sentence(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        HGSL(**FAST | options).fit(small())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(3, 2), r"of \(3, 2\) given; expected a tensor of \(27, columns\)"),
        (torch.zeros(27), r"of \(27,\) given"),
        ([1.0], "of list given"),
        (torch.full((27, 2), torch.nan), "not finite"),
    ],
)
def test_embeddings_are_refused_in_one_sentence(given: Any, message: str) -> None:
    graph = small()
    graph["metapath:apa"] = given
    with pytest.raises(InvalidInput, match=message) as caught:
        HGSL(**FAST).fit(graph)
    assert "\n" not in str(caught.value)
