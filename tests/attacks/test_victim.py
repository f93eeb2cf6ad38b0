"""A victim predicts as its model does, and an edge of weight zero is none."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from attacks.graphs import CLASSES, NODES, as_double, fitted, scene, small_graph, victim
from attacks.test_perturbation import some_flips
from gsebo import GSEBO, Graph, InputWarning, InvalidInput, ProGNN, Vanilla
from gsebo.attacks.base import Scene
from gsebo.attacks.perturbation import both_directions
from gsebo.attacks.victim import victim_of

BACKBONES = ["gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage", "mlp", "pyg:GCN"]


def probabilities(victim: Any, graph: Graph) -> Tensor:
    with torch.no_grad():
        logits = victim.logits(*Scene(graph, victim, False, 0).edges)
        return logits.softmax(-1)


def of_model(model: Any, graph: Graph) -> Tensor:
    with warnings.catch_warnings():
        # Of edges that a fit did not have.
        warnings.simplefilter("ignore", InputWarning)
        found: Tensor = model.predict_proba(graph)
        return found


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_edge_of_weight_zero_is_none(backbone: str) -> None:
    edges, weights = scene().edges
    flips = some_flips()
    without = Scene(flips.apply(small_graph()), None, False, 0).edges
    new = both_directions(flips.added)
    gone = both_directions(flips.removed)
    keys = {tuple(pair) for pair in gone.T.tolist()}
    left = torch.tensor([float(tuple(p) not in keys) for p in edges.T.tolist()])
    found = victim(backbone).logits(
        torch.cat([edges, new, new], dim=1),
        # Twice the same, with half the weight.
        torch.cat([weights * left, torch.full((2 * new.shape[1],), 0.5)]),
    )
    torch.testing.assert_close(found, victim(backbone).logits(*without))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_victim_predicts_as_its_model(backbone: str) -> None:
    graph = small_graph()
    for seen in (graph, some_flips().apply(graph)):
        expected = fitted(backbone).predict_proba(seen)
        torch.testing.assert_close(probabilities(victim(backbone), seen), expected)


def learned(method: str, graph: Graph) -> Any:
    made: Any = ProGNN(max_epochs=10)
    if method == "gsebo":
        made = GSEBO(max_outer_steps=8, inner_steps=5)
    return made.set_params(random_state=0, device="cpu").fit(graph)


@pytest.mark.parametrize(
    ("method", "weighted"), [("gsebo", False), ("gsebo", True), ("prognn", False)]
)
def test_what_was_learned_of_edges_counts(method: str, weighted: bool) -> None:
    graph = small_graph().clone()
    if weighted:
        graph.edge_weight = (graph.edge_index.sum(0) % 3 + 1).float()
    model = learned(method, graph)
    target = victim_of(model, graph)
    for seen in (graph, some_flips().apply(graph)):
        expected = of_model(model, seen)
        torch.testing.assert_close(probabilities(target, seen), expected)


def test_weights_that_a_method_does_not_use() -> None:
    graph, model = small_graph().clone(), learned("prognn", small_graph())
    graph.edge_weight = torch.full((graph.num_edges,), 3.0)
    assert bool((Scene(graph, model, False, 0).edges[1] == 1).all())
    assert bool((Scene(graph, fitted(), False, 0).edges[1] == 3).all())


@pytest.mark.parametrize("method", ["gsebo", "prognn"])
def test_edges_of_weight_zero_among_learned_ones(method: str) -> None:
    graph = small_graph()
    target = victim_of(learned(method, graph), graph)
    edges, weights = scene().edges
    new = both_directions(some_flips().added)
    nothing = torch.zeros(new.shape[1])
    found = target.logits(torch.cat([edges, new], dim=1), torch.cat([weights, nothing]))
    torch.testing.assert_close(found, target.logits(edges, weights))


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk"])
def test_the_gradient_is_that_of_finite_differences(backbone: str) -> None:
    graph = as_double(small_graph())
    # Kernels of attention in double precision over five channels are compiled for
    # other tests too.
    options = {"hidden_channels": 5, "max_epochs": 10, "random_state": 0}
    model = Vanilla(backbone, **options, device="cpu").fit(graph)
    target = victim_of(model, graph)
    edges, weights = Scene(graph, target, False, 0).edges
    new = both_directions(some_flips().added)
    edges = torch.cat([edges, new], dim=1)
    # Absent, present and between, at places where nothing has a kink.
    weights = torch.cat([weights.double(), torch.full((new.shape[1],), 1e-4).double()])
    direction = torch.randn(
        len(weights), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    weights.requires_grad_()

    def loss(given: Tensor) -> Tensor:
        return target.logits(edges, given).log_softmax(-1)[:, 0].sum()

    (gradient,) = torch.autograd.grad(loss(weights), weights)
    step = 1e-6 * direction
    with torch.no_grad():
        slope = (loss(weights + step) - loss(weights - step)) / 2e-6
    assert float(gradient @ direction) == pytest.approx(float(slope), rel=1e-5)


class Convolutions(nn.Module):
    """A network of PyG, with or without weights in its layers."""

    def __init__(self, kind: type[nn.Module] = GCNConv) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = kind(8, 16), kind(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.first(x, edge_index, edge_weight).relu()
        found: Tensor = self.second(h, edge_index, edge_weight)
        return found


def test_any_module_can_be_a_victim() -> None:
    graph, module = small_graph(), Convolutions()
    target = victim_of(module, graph)
    edges, weights = scene().edges
    torch.testing.assert_close(
        target.logits(edges, weights), module(graph.x, edges, weights)
    )
    assert target.logits(edges, weights).shape == (NODES, CLASSES)
    assert victim_of(target, graph) is target


class Unweighted(nn.Module):
    """A network that looks at edges and not at weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = GATConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        found: Tensor = self.layer(x, edge_index)
        return found


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Unweighted(), "an edge of weight 0 is not the same as none"),
        (nn.Linear(8, CLASSES), "is called as module"),
        (object(), "expected a fitted estimator"),
    ],
)
def test_what_cannot_be_a_victim(model: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        victim_of(model, small_graph())


def test_a_network_whose_attention_counts_what_is_absent_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not the same as none"):
        victim_of(fitted("magna"), small_graph())


def test_strengths_of_another_graph_are_refused() -> None:
    model = learned("gsebo", small_graph())
    other = Graph(torch.ones(3, 8), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(InvalidInput, match="expected the graph of its fit"):
        victim_of(model, other)
