"""A fitted model as a module of torch."""

import copy
from typing import Any

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer

import gsebo
from gsebo import InvalidInput
from gsebo.methods import GraphClassifier
from methods.examples import fitted, quick, small_graph, with_fields

NETWORKS = ["gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage", "mlp", "pyg:GCN"]
NETWORKS += ["appnp", "gcnii", "grand"]
# Kernels of attention over eight channels are compiled for other tests too.
OPTIONS: dict[str, Any] = {
    "hidden_channels": 8,
    "max_outer_steps": 4,
    "random_state": 0,
    "device": "cpu",
}


def learned(backbone: str) -> GraphClassifier:
    own = {"backbone_options": {"mode": "lstm"}} if backbone == "jk" else {}
    per_layer = backbone in ("gcn", "gat")
    return gsebo.GSEBO(backbone, per_layer=per_layer, **OPTIONS | own).fit(
        small_graph()
    )


@pytest.mark.parametrize("backbone", NETWORKS)
def test_it_is_the_fitted_model_and_can_be_differentiated(backbone: str) -> None:
    model, graph = learned(backbone), small_graph()
    module = model.to_module()
    found = module(graph.x, graph.edge_index)
    wanted = model.predict_proba(graph).log()
    torch.testing.assert_close(found.log_softmax(-1), wanted, atol=1e-5, rtol=1e-5)
    # Neither the order of the edges nor their number in the list counts.
    shuffled = graph.edge_index[:, torch.randperm(graph.num_edges)]
    torch.testing.assert_close(module(graph.x, shuffled), found)
    x = graph.x.clone().requires_grad_()
    weight = torch.rand(graph.num_edges, dtype=torch.float32).requires_grad_()
    torch.testing.assert_close(module(x, graph.edge_index), found)
    module(x, graph.edge_index, weight).square().sum().backward()
    assert x.grad is not None and bool(x.grad.any())
    assert backbone == "mlp" or (weight.grad is not None and bool(weight.grad.any()))


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "pyg:GCN"])
def test_an_explainer_finds_the_edges_that_count(backbone: str) -> None:
    module, graph = learned(backbone).to_module(), small_graph()
    explainer = Explainer(
        module,
        GNNExplainer(epochs=5),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    before = module(graph.x, graph.edge_index)
    node = 5
    mask = explainer(graph.x, graph.edge_index, index=node).edge_mask
    assert mask.shape == (graph.num_edges,)
    # Whatever it depends on is at most as many edges away as there are layers.
    near = torch.zeros(60, dtype=torch.bool)
    near[node] = True
    reached = torch.zeros(graph.num_edges, dtype=torch.bool)
    for _ in range(3 if backbone == "jk" else 2):
        source, target = graph.edge_index
        reached |= near[target]
        near[source[near[target]]] = True
    assert not bool(mask[~reached].any())
    assert bool(mask[graph.edge_index[1] == node].all())
    # And leaves nothing behind.
    assert torch.equal(module(graph.x, graph.edge_index), before)


def test_a_mask_of_zeros_takes_every_edge_away() -> None:
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    module, graph = learned("gcn").to_module(), small_graph()
    zeros = torch.zeros(graph.num_edges)
    set_masks(module, zeros, graph.edge_index, apply_sigmoid=False)
    alone = module(graph.x, graph.edge_index)
    moved = graph.x + (torch.arange(60) != 7).unsqueeze(1)
    torch.testing.assert_close(module(moved, graph.edge_index)[7], alone[7])
    clear_masks(module)


def test_weights_are_those_of_the_clean_graph() -> None:
    model, graph = fitted("amortised"), small_graph()
    module, cleaned = model.to_module(), model.clean_graph()
    found = module(graph.x, cleaned.edge_index, cleaned.edge_weight)
    torch.testing.assert_close(found, module(graph.x, graph.edge_index))


def test_other_graphs_are_as_they_are() -> None:
    vanilla, other = fitted("vanilla"), small_graph(seed=3)
    module = vanilla.to_module()
    found = module(other.x, other.edge_index).softmax(-1)
    torch.testing.assert_close(found, vanilla.predict_proba(other))
    ones = torch.ones(other.num_edges)
    torch.testing.assert_close(
        module(other.x, other.edge_index, ones).softmax(-1), found
    )


def test_it_can_be_copied_trained_and_restored() -> None:
    graph = small_graph()
    module = fitted("gsebo").to_module()
    before, other = module(graph.x, graph.edge_index), copy.deepcopy(module)
    assert not module.training
    module.train()
    torch.manual_seed(0)
    noisy = module(graph.x, graph.edge_index)
    assert not torch.equal(noisy, before)
    torch.manual_seed(0)
    assert torch.equal(module(graph.x, graph.edge_index), noisy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    noisy.square().sum().backward()
    optimizer.step()
    module.eval()
    assert not torch.equal(module(graph.x, graph.edge_index), before)
    assert torch.equal(other(graph.x, graph.edge_index), before)
    module.load_state_dict(other.state_dict())
    assert torch.equal(module(graph.x, graph.edge_index), before)
    # The estimator has kept its own.
    wanted = fitted("gsebo").predict_proba(graph)
    torch.testing.assert_close(before.softmax(-1), wanted)


@pytest.mark.parametrize("features", ["standard", "rows", "largest"])
def test_prepared_features(features: str) -> None:
    graph = small_graph()
    graph = with_fields(
        graph, x=graph.x.abs() * torch.tensor([1.0, 9, 3, 4, 5, 6, 7, 8])
    )
    model = quick("auto", methods="vanilla", features=features).fit(graph)
    module = model.to_module()
    found = module(graph.x, graph.edge_index).softmax(-1)
    torch.testing.assert_close(found, model.predict_proba(graph))


def test_what_cannot_be_one_module() -> None:
    with pytest.raises(InvalidInput, match="graphs of their own"):
        fitted("bgcn").to_module()
    bare = small_graph()
    del bare["x"]
    model = quick("auto", methods="vanilla", features="degree").fit(bare)
    with pytest.raises(InvalidInput, match="'degree'"):
        model.to_module()
    module, graph = fitted("gsebo").to_module(), small_graph()
    with pytest.raises(InvalidInput, match="edge_weight has shape"):
        module(graph.x, graph.edge_index, torch.ones(3))
    with pytest.raises(InvalidInput, match="x has shape"):
        module(graph.x[:, :2], graph.edge_index)
