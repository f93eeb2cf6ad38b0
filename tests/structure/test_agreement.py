"""What predictions say of edges, also of those between nodes without classes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gsebo.graph import Graph, Topology
from gsebo.graph.topology import canonicalise
from gsebo.structure.agreement import (
    NUM_AGREEMENTS,
    Agreements,
    agreement,
    told_predictions,
)

CLASSES = 3
EXACT = {"rtol": 0, "atol": 1e-12}


def laid_out(
    edges: Tensor, node_type: Tensor, classified: int | None = 0, loops: bool = True
) -> Topology:
    """A graph whose nodes of one type, or of two, have classes."""
    numbers = range(int(node_type.max()) + 1)
    labelled = node_type == (0 if classified is None else classified)
    if classified is None:
        labelled |= node_type == 1
    graph = Graph(
        edge_index=edges,
        y=torch.where(labelled, 0, -1),
        num_nodes=len(node_type),
        node_type=node_type,
        meta={"node_types": [f"t{number}" for number in numbers]},
    )
    return Topology.of(canonicalise(graph), self_loops=loops, device="cpu")


def random_graph(seed: int, num_nodes: int = 16, num_edges: int = 14) -> Topology:
    """Few edges between nodes of four types, one of which has classes."""
    rng = torch.Generator().manual_seed(seed)
    node_type = torch.randint(4, (num_nodes,), generator=rng)
    node_type[:2] = torch.tensor([0, 3])
    edges = torch.randint(num_nodes - 1, (2, num_edges), generator=rng)
    # Some are there both ways, and some twice.
    both = torch.cat([edges, edges[:, :5].flip(0), edges[:, 3:6]], dim=1)
    return laid_out(both, node_type, loops=bool(seed % 2))


def predictions(num_nodes: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_nodes, CLASSES, generator=rng, dtype=torch.float64)
    return (2 * scores).softmax(-1)


class Reference:
    """The same by plain loops over nodes and their neighbors."""

    def __init__(self, graph: Topology, predicted: Tensor, classified: int) -> None:
        node_type = graph.graph.types.node_type.tolist()
        self.predicted, self.edges = predicted, graph.graph.edge_index.T.tolist()
        self.neighbors = {node: set() for node in range(len(node_type))}
        for source, target in self.edges:
            self.neighbors[source].add(target)
            self.neighbors[target].add(source)
        self.distance = {
            node: 0 for node, kind in enumerate(node_type) if kind == classified
        }
        waiting = list(self.distance)
        for node in waiting:
            for other in self.neighbors[node] - self.distance.keys():
                self.distance[other] = self.distance[node] + 1
                waiting.append(other)

    def said(self, node: int, without: int | None = None) -> Tensor:
        """What a node is, or is told by others than one of them."""
        if node not in self.distance:
            return torch.full_like(self.predicted[0], 1 / CLASSES)
        if self.distance[node] == 0:
            return self.predicted[node]
        nearer = [
            other
            for other in sorted(self.neighbors[node])
            if self.distance[other] == self.distance[node] - 1 and other != without
        ]
        if not nearer:
            return torch.full_like(self.predicted[0], 1 / CLASSES)
        return torch.stack([self.said(other) for other in nearer]).mean(0)

    def columns(self) -> Tensor:
        found = []
        for source, target in self.edges:
            one, other = self.said(source, target), self.said(target, source)
            sure = sorted([float(one.max()), float(other.max())])
            found.append([float(one @ other), *sure])
        return 2 * torch.tensor(found, dtype=torch.float64) - 1


SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_agreement_is_what_loops_find(seed: int) -> None:
    graph = random_graph(seed)
    predicted = predictions(graph.num_nodes, seed)
    expected = Reference(graph, predicted, 0)
    torch.testing.assert_close(agreement(graph, predicted), expected.columns(), **EXACT)
    told = torch.stack([expected.said(node) for node in range(graph.num_nodes)])
    torch.testing.assert_close(told_predictions(graph, predicted), told, **EXACT)


def test_the_random_graphs_have_all_that_there_is_to_test() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        graph = random_graph(seed)
        found = Reference(graph, predictions(graph.num_nodes), 0)
        rings = set(found.distance.values())
        seen |= {f"ring {number}" for number in rings}
        if len(found.distance) < graph.num_nodes:
            seen.add("isolated")
        for node, distance in found.distance.items():
            nearer = [
                each
                for each in found.neighbors[node]
                if found.distance[each] == distance - 1
            ]
            if distance and len(nearer) == 1:
                seen.add("told by one")
            if distance and len(nearer) > 1:
                seen.add("told by several")
    assert seen >= {"ring 0", "ring 1", "ring 2", "ring 3", "isolated"}
    assert seen >= {"told by one", "told by several"}


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_agreement_can_be_differentiated(seed: int) -> None:
    graph = random_graph(seed)
    predicted = predictions(graph.num_nodes, seed).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda p: agreement(graph, p), predicted, check_batched_grad=False
    )


def test_what_a_network_says_of_nodes_without_classes_does_not_matter() -> None:
    graph = random_graph(0)
    predicted = predictions(graph.num_nodes)
    other = predictions(graph.num_nodes, 1)
    has_class = (graph.graph.types.node_type == 0).unsqueeze(-1)
    mixed = torch.where(has_class, predicted, other)
    assert torch.equal(agreement(graph, mixed), agreement(graph, predicted))


def test_a_node_told_by_one_alone_says_nothing_of_that_edge() -> None:
    # 0 and 1 have classes; 2 is told by both, 3 by the first alone; 4 is told by 3.
    edges = torch.tensor([[0, 1, 0, 3], [2, 2, 3, 4]])
    graph = laid_out(edges, torch.tensor([0, 0, 1, 1, 2]))
    p = predictions(5)
    agree = (agreement(graph, p)[:, 0] + 1) / 2
    ends = [tuple(each) for each in graph.graph.edge_index.T.tolist()]
    found = dict(zip(ends, agree.tolist(), strict=True))
    # Without the edge at hand, 2 is as the other neighbor, and 3 and 4 are nothing.
    assert found[0, 2] == pytest.approx(float(p[0] @ p[1]))
    assert found[1, 2] == pytest.approx(float(p[1] @ p[0]))
    assert found[0, 3] == pytest.approx(1 / CLASSES)
    assert found[3, 4] == pytest.approx(1 / CLASSES)


def test_neither_ways_nor_several_relations_count() -> None:
    edges = torch.tensor([[0, 1, 2, 0, 3], [2, 2, 3, 4, 4]])
    node_type = torch.tensor([0, 0, 1, 2, 1])
    p = predictions(5)

    def by_pair(edges: Tensor, edge_type: Tensor | None = None) -> dict:
        graph = Graph(
            edge_index=edges,
            num_nodes=5,
            node_type=node_type,
            y=torch.where(node_type == 0, 0, -1),
        )
        if edge_type is not None:
            graph.edge_type = edge_type
        topology = Topology.of(canonicalise(graph), self_loops=False, device="cpu")
        ends = topology.graph.edge_index.T.tolist()
        rows = agreement(topology, p).tolist()
        return {frozenset(pair): row for pair, row in zip(ends, rows, strict=True)}

    expected = by_pair(edges)
    assert len(expected) == edges.shape[1]
    for other in (edges.flip(0), torch.cat([edges, edges.flip(0)], dim=1)):
        found = by_pair(other)
        for pair, row in expected.items():
            assert found[pair] == pytest.approx(row)
    # Of each edge also one of another relation that joins the same types.
    first = canonicalise(Graph(edge_index=edges, num_nodes=5, node_type=node_type))
    number = first.types.edge_type
    twice = torch.cat([first.edge_index, first.edge_index], dim=1)
    found = by_pair(twice, torch.cat([number, number + int(number.max()) + 1]))
    for pair, row in expected.items():
        assert found[pair] == pytest.approx(row)


@pytest.mark.parametrize("typed", [False, True])
def test_where_all_have_classes_each_speaks_for_itself(typed: bool) -> None:
    given = random_graph(3)
    edges = given.graph.edge_index
    p = predictions(given.num_nodes)
    if typed:
        # Nodes of two types have labels, so that no type is the one that has classes.
        graph = laid_out(edges, given.graph.types.node_type, classified=None)
        assert graph.graph.types.classified is None
    else:
        graph = Topology.from_edges(
            edges, given.num_nodes, self_loops=True, device="cpu"
        )
    source, target = graph.graph.edge_index
    sure = p.amax(-1)
    expected = [
        (p[source] * p[target]).sum(-1),
        torch.minimum(sure[source], sure[target]),
        torch.maximum(sure[source], sure[target]),
    ]
    found = agreement(graph, p)
    torch.testing.assert_close(found, 2 * torch.stack(expected, -1) - 1, **EXACT)
    assert torch.equal(told_predictions(graph, p), p)
    assert torch.autograd.gradcheck(lambda x: agreement(graph, x), p.requires_grad_())


def test_one_type_of_nodes_is_as_none_at_all() -> None:
    edges = random_graph(5).graph.edge_index
    p = predictions(16)
    one = laid_out(edges, torch.zeros(16, dtype=torch.int64))
    none = Topology.from_edges(edges, 16, self_loops=True, device="cpu")
    assert torch.equal(agreement(one, p), agreement(none, p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_edges_or_nodes_with_classes(dtype: torch.dtype) -> None:
    p = predictions(4).to(dtype)
    nothing = torch.empty(2, 0, dtype=torch.int64)
    alone = laid_out(nothing, torch.tensor([0, 1, 1, 2]))
    assert agreement(alone, p).shape == (0, 3)
    even = torch.full((3, CLASSES), 1 / CLASSES, dtype=dtype)
    assert torch.equal(told_predictions(alone, p), torch.cat([p[:1], even]))
    # A type that has classes and no node.
    edges = torch.tensor([[1, 2], [2, 3]])
    none = laid_out(edges, torch.tensor([1, 1, 2, 1]))
    types = none.graph.types
    object.__setattr__(types, "classified", 0)
    found = agreement(none, p)
    assert found.dtype == dtype
    assert torch.allclose(found, torch.full_like(found, 2 / CLASSES - 1))


def test_two_predictors_side_by_side_and_zeros_of_none() -> None:
    graph = random_graph(2)
    one, other = predictions(16, 1), predictions(16, 2)
    like = torch.zeros(1, dtype=torch.float64)
    agreements = Agreements()
    found = agreements.of(graph, (one, other), like)
    expected = [agreement(graph, each) for each in (one, other)]
    assert torch.equal(found, torch.cat(expected, dim=-1))
    assert torch.equal(agreements.of(graph, (one, other), like), found)
    none = agreements.of(graph, None, like)
    assert none.shape == (graph.num_edges, NUM_AGREEMENTS)
    assert not none.any()
