"""Shares of pairs, the gradient by them, projection, and what an attack makes large."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attacks.graphs import as_double, fitted, scene, small_graph
from attacks.test_perturbation import some_flips
from gsebo import Graph, Vanilla
from gsebo.attacks.base import Scene
from gsebo.attacks.losses import attack_loss, margins, targeted_loss
from gsebo.attacks.prbcd import project
from gsebo.attacks.relaxed import RelaxedGraph
from gsebo.attacks.victim import victim_of


def total(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)[:, 1].sum()


def test_whole_shares_are_the_changed_graph() -> None:
    flips = some_flips()
    graph, ours = small_graph(), RelaxedGraph(scene())
    changed = fitted().predict_proba(flips.apply(graph))
    assert ours.value(flips.flips, total) == pytest.approx(
        float(changed[:, 1].log().sum()), rel=1e-5
    )
    nothing = ours.value(flips.flips[:0], total)
    assert nothing == pytest.approx(float(total(scene().victim.logits(*scene().edges))))


@pytest.mark.parametrize("directed", [False, True])
def test_the_gradient_by_shares(directed: bool) -> None:
    graph = as_double(small_graph())
    if directed:
        graph.edge_index = graph.edge_index[:, ::3]
    graph.edge_weight = 1.0 + torch.arange(graph.num_edges) % 2
    model = Vanilla(max_epochs=10, random_state=0, device="cpu").fit(graph)
    ours = RelaxedGraph(Scene(graph, victim_of(model, graph), False, 0))
    flips = some_flips().flips
    shares = torch.linspace(0.1, 0.9, len(flips), dtype=torch.float64)
    block = ours.block(flips)
    gradient = ours.gradient(block, shares, total)
    step = 1e-6
    for place in (0, 20, len(flips) - 1):
        moved = torch.zeros_like(shares)
        moved[place] = step
        ends = [
            total(model_logits(graph, model, block, shares + sign * moved))
            for sign in (1, -1)
        ]
        slope = float(ends[0] - ends[1]) / (2 * step)
        assert float(gradient[place]) == pytest.approx(slope, rel=1e-4, abs=1e-8)


def model_logits(graph: Graph, model: object, block: object, shares: Tensor) -> Tensor:
    weights = block.weights(shares)  # type: ignore[attr-defined]
    target = victim_of(model, graph)
    return target.logits(block.edge_index, weights)  # type: ignore[attr-defined]


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=30),
    st.integers(1, 30),
)
def test_projection_is_the_nearest_point_within_the_budget(
    values: list[float], budget: int
) -> None:
    given = torch.tensor(values, dtype=torch.float64)
    found = project(given, budget)
    assert bool((found >= 0).all() and (found <= 1).all())
    assert float(found.sum()) <= budget + 1e-9
    # Of a convex set: every other point of it lies behind the nearest one.
    generator = torch.Generator().manual_seed(budget)
    for _ in range(5):
        other = torch.rand(len(values), generator=generator, dtype=torch.float64)
        other = other * min(1.0, budget / float(other.sum()))
        assert float((given - found) @ (other - found)) <= 1e-6


def test_losses_by_hand() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    labels = torch.tensor([0, 1])
    p = logits.softmax(-1)
    expected = ((p[0, 1] - p[0, 0]) + (p[1, 2] - p[1, 1])) / 2
    assert attack_loss("prob_margin", logits, labels) == expected
    tanh = torch.tensor([-1.0, 2.0]).tanh().mean()
    assert attack_loss("tanh_margin", logits, labels) == tanh
    each = -p.log()[[0, 1], labels]
    assert attack_loss("cross_entropy", logits, labels) == pytest.approx(
        float(each.mean())
    )
    # The second is wrong already.
    masked = attack_loss("masked", logits, labels)
    assert masked == pytest.approx(float(each[0] / 2))
    assert margins(logits, labels).tolist() == [1, -2]


@pytest.mark.parametrize("name", ["prob_margin", "tanh_margin", "cross_entropy"])
def test_a_target_is_the_other_way_round(name: str) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    wanted = torch.tensor([2, 2])
    expected = -attack_loss(name, logits, wanted)  # type: ignore[arg-type]
    assert targeted_loss(name, logits, 2) == expected  # type: ignore[arg-type]


def test_nodes_that_reached_their_target_do_not_count() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], requires_grad=True)
    targeted_loss("masked", logits, 2).backward()
    assert logits.grad is not None
    assert logits.grad[1].tolist() == [0, 0, 0] and float(logits.grad[0, 2]) > 0
