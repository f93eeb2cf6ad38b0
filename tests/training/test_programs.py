"""Derivatives by hand against those of autograd, on the same problem."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN

from gsebo import GSEBO, generate_graph
from gsebo.bilevel import Tree
from gsebo.bilevel.derivatives import AutogradDerivatives
from gsebo.bilevel.tree import flatten
from gsebo.methods.fitting import PreparedGraph
from gsebo.sparse.symbol import Untraceable
from gsebo.tape import backend
from gsebo.training import NodeClassification

pytestmark = pytest.mark.compiles

STRONG = {"residual": True, "norm": "layer", "input_projection": True}


def _with(backbone: str, layers: int = 2, **options: Any) -> dict[str, Any]:
    return {"backbone": backbone, "num_layers": layers, "backbone_options": options}


BACKBONES: dict[str, dict[str, Any]] = {
    "gcn": {"backbone": "gcn"},
    "one layer": {"backbone": "gcn", "num_layers": 1},
    "deep": {"backbone": "gcn", "num_layers": 4},
    "sage": {"backbone": "sage"},
    "sage gcn": {"backbone": "sage", "backbone_options": {"aggregator": "gcn"}},
    "jk": {"backbone": "jk", "num_layers": 3},
    "jk of two": {"backbone": "jk", "num_layers": 2},
    "gat": {"backbone": "gat"},
    "residual": _with("gcn", residual=True),
    "layer norm": _with("gcn", norm="layer", layers=3),
    "batch norm": _with("gcn", norm="batch"),
    "strong gcn": _with("gcn", **STRONG, layers=3),
    "strong gat": _with("gat", **STRONG, heads=2),
    "strong sage": _with("sage", **STRONG | {"norm": "batch"}),
    "strong jk": _with("jk", **STRONG),
    "appnp": _with("appnp", hops=3),
    "gcnii": _with("gcnii", layers=3),
    "mlp": {"backbone": "mlp", "structure": "fixed"},
}
every_backbone = pytest.mark.parametrize("choice", BACKBONES)


def graph(seed: int = 0, *, sparse: bool = False, directed: bool = False) -> Data:
    data = generate_graph(
        40, num_classes=3, average_degree=3.0, seed=seed, split="random:15/25/60"
    )
    data.x = data.x.double()
    if sparse:
        data.x = data.x * (data.x.abs() > 1.6)
    if directed:
        keep = torch.arange(data.num_edges) % 3 > 0
        data.edge_index = data.edge_index[:, keep]
    return data


def problem_on(data: Data, **options: Any) -> NodeClassification:
    model = GSEBO(**{"hidden_channels": 5, "dropout": 0.4} | options)
    prepared = PreparedGraph(data, torch.device("cpu"))
    return model.make_problem(prepared, seed=3)


def somewhere(problem: NodeClassification, seed: int = 0) -> tuple[Tree, Tree, Tree]:
    """Weights, outer variables and a direction, none of them special."""
    generator = torch.Generator().manual_seed(seed)

    def moved(tree: Tree, by: float) -> Tree:
        return {
            name: leaf + by * torch.randn(leaf.shape, generator=generator).to(leaf)
            for name, leaf in tree.items()
        }

    weights = moved(problem.initial_weights(), 0.1)
    return weights, moved(problem.initial_outer(), 0.05), moved(weights, 1.0)


def error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm().clamp(min=1e-12))


def assert_same_derivatives(problem: NodeClassification, seed: int = 0) -> None:
    weights, outer, direction = somewhere(problem, seed)
    ours = problem.derivatives(outer)
    assert ours is not None
    plain = AutogradDerivatives(
        problem, outer, range(5, 7), kept_graphs=1, graph_memory=0
    )
    for step in (5, 6):
        found, loss = ours.inner_gradient(weights, step)
        truth, true_loss = plain.inner_gradient(weights, step)
        assert error(found["weights"], truth["weights"]) < 1e-11
        torch.testing.assert_close(loss, true_loss)
    for direct_term in (False, True):
        found = ours.outer_gradient(weights, direct_term=direct_term)
        truth = plain.outer_gradient(weights, direct_term=direct_term)
        torch.testing.assert_close(found[0], truth[0])
        assert error(found[1]["weights"], truth[1]["weights"]) < 1e-11
        assert found[2].keys() == truth[2].keys()
        for name in truth[2]:
            assert error(found[2][name], truth[2][name]) < 1e-11
    # Autograd leaves out the derivative by the oldest weights, which nobody needs.
    found = ours.pull_back(weights, 6, direction)
    truth = plain.pull_back(weights, 6, direction)
    assert error(found["weights"], truth["weights"]) < 1e-11
    ours.pull_back(weights, 5, direction)
    plain.pull_back(weights, 5, direction)
    assert ours.gathered().keys() == plain.gathered().keys()
    if outer:
        assert error(flatten(ours.gathered()), flatten(plain.gathered())) < 1e-11
    logits = problem.logits(weights, outer, None)
    assert error(problem.scores(weights, outer), logits.detach()) < 1e-11


@every_backbone
@pytest.mark.parametrize("sparse", [False, True])
def test_programs_know_the_derivatives(choice: str, sparse: bool) -> None:
    assert_same_derivatives(problem_on(graph(sparse=sparse), **BACKBONES[choice]))


@every_backbone
@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.0},
        {"per_layer": True},
        {"tied": True, "learn_self_loops": False},
        {"inner_reduction": "sum"},
    ],
    ids=["no dropout", "per layer", "tied", "sum"],
)
def test_with_every_option(choice: str, options: dict[str, Any]) -> None:
    assert_same_derivatives(problem_on(graph(), **BACKBONES[choice] | options))


@given(
    seed=st.integers(0, 999),
    choice=st.sampled_from(sorted(BACKBONES)),
    sparse=st.booleans(),
    directed=st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_on_any_graph(seed: int, choice: str, sparse: bool, directed: bool) -> None:
    data = graph(seed, sparse=sparse, directed=directed)
    assert_same_derivatives(problem_on(data, **BACKBONES[choice]), seed)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_sum_is_the_mean_of_so_many_nodes(by_hand: bool) -> None:
    mean, total = (
        problem_on(graph(), inner_reduction=reduction, weight_decay=0.3)
        for reduction in ("mean", "sum")
    )
    weights, outer, _ = somewhere(mean)

    def found(problem: NodeClassification) -> tuple[Tensor, Tensor]:
        ours = problem.derivatives(outer)
        assert ours is not None
        known = ours if by_hand else AutogradDerivatives(problem, outer, range(5, 6))
        gradients, loss = known.inner_gradient(weights, 5)
        return loss.detach(), gradients["weights"].clone()

    count, penalty = mean.inner_nodes.numel(), mean.task.penalty(weights)
    (loss, gradient), (sum_loss, sum_gradient) = found(mean), found(total)
    # The penalty is the same beside both.
    torch.testing.assert_close(sum_loss - penalty, count * (loss - penalty))
    decay = 0.3 * weights["weights"]
    torch.testing.assert_close(sum_gradient - decay, count * (gradient - decay))
    losses = [problem.outer_loss(weights, outer) for problem in (mean, total)]
    assert torch.equal(*losses)


def test_isolated_nodes_and_no_edges() -> None:
    data = graph()
    data.edge_index = data.edge_index[:, :0]
    for choice in ("gcn", "sage", "jk", "gat", "strong gat", "batch norm", "gcnii"):
        problem = problem_on(data, **BACKBONES[choice], structure="fixed")
        assert_same_derivatives(problem)


def test_a_later_use_of_a_problem_starts_anew() -> None:
    problem = problem_on(graph())
    weights, outer, direction = somewhere(problem)
    first = problem.derivatives(outer)
    assert first is not None
    first.pull_back(weights, 0, direction)
    once = first.gathered()["change"]
    again = problem.derivatives(outer)
    assert again is not None
    again.pull_back(weights, 0, direction)
    assert torch.equal(again.gathered()["change"], once)
    again.pull_back(weights, 0, direction)
    torch.testing.assert_close(again.gathered()["change"], 2 * once)


@pytest.mark.parametrize(
    "options",
    [
        {"backbone": PyGGCN(16, 8, 2, 3)},
        {"backbone": "jk", "backbone_options": {"mode": "lstm"}},
        {"backbone": "jk", "backbone_options": {"mode": "max"}},
        {"backbone": "gat", "backbone_options": {"output_heads": 2}},
    ],
    ids=["pyg", "lstm", "max", "mean of heads"],
)
def test_what_has_no_kernels_is_left_to_autograd(options: dict[str, Any]) -> None:
    problem = problem_on(graph(), **options)
    weights, outer, _ = somewhere(problem)
    assert problem.derivatives(outer) is None
    plain = AutogradDerivatives(problem, outer)
    truth = plain.outer_gradient(weights, direct_term=True)
    assert torch.isfinite(truth[0])
    logits = problem.logits(weights, outer, None)
    assert torch.equal(problem.scores(weights, outer), logits)


def test_a_device_without_kernels_is_left_to_autograd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_for(like: Tensor) -> None:
        raise Untraceable(str(like.device))

    monkeypatch.setattr(backend, "tape_kernels_for", none_for)
    problem = problem_on(graph())
    assert problem.programs is None
    assert problem.derivatives(problem.initial_outer()) is None


def test_nothing_is_left_of_a_diverged_step() -> None:
    problem = problem_on(graph())
    weights, outer, _ = somewhere(problem)
    weights["weights"][0] = float("nan")
    ours = problem.derivatives(outer)
    assert ours is not None
    gradients, loss = ours.inner_gradient(weights, 0)
    assert loss.isnan() and gradients["weights"].isnan().any()
