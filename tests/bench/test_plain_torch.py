"""The peer in plain torch computes only what matters, and all of it."""

from dataclasses import replace

import pytest
import torch
from benchmarks.case import Case
from benchmarks.equality import _differences, _unit_vectors, relative_error
from benchmarks.graphs import in_double, load_graph
from benchmarks.peers import reach
from benchmarks.peers.networks import Network
from benchmarks.peers.products import (
    Constant,
    Places,
    expand,
    multiply,
    project,
    softmax,
    weights_only,
)
from benchmarks.peers.reach import Reach
from benchmarks.peers.reach_networks import dropped
from benchmarks.peers.with_torch import TorchPeer
from benchmarks.setting import BACKBONES, Setting
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from .examples import distance, tiny_case

ROWS, COLUMNS = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([1, 0, 2, 0, 1, 2])


def places(order: Tensor) -> Places:
    return Places(ROWS[order], COLUMNS[order], 4, 3, torch.zeros(0).double())


def numbers(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    "order", [torch.arange(6), torch.tensor([4, 0, 5, 2, 1, 3])], ids=["rows", "mixed"]
)
def test_operators_can_be_differentiated_twice(order: Tensor) -> None:
    here = places(order)

    def product(values: Tensor, x: Tensor) -> Tensor:
        return multiply(here, values, x, weights_in_values=True)

    dense = torch.zeros(4, 3, dtype=torch.float64)
    values, x = numbers(6), numbers(3, 2)
    dense[here.rows, here.columns] = values.detach()
    torch.testing.assert_close(product(values, x), dense @ x)
    for function, inputs in (
        (product, (values, x)),
        (lambda x: expand(here, x), (numbers(4, 2),)),
        (lambda x: expand(here, x, by_column=True), (numbers(3, 2),)),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)


def test_softmax_and_constants_can_be_differentiated_twice() -> None:
    # Every row needs an entry for a softmax of its own, as self-loops give it.
    here = Places(ROWS[:3], COLUMNS[:3], 2, 3, torch.zeros(0).double())
    matrix = Constant(here, numbers(3).detach())
    share = softmax(here, numbers(3, 2))
    torch.testing.assert_close(share[:2].sum(0), torch.ones(2).double())
    for function, inputs in (
        (lambda x: softmax(here, x), numbers(3, 2)),
        (lambda x: project(matrix, x), numbers(3, 2)),
    ):
        assert gradcheck(function, (inputs,))
        assert gradgradcheck(function, (inputs,))


def test_only_derivatives_by_strengths_are_left_out() -> None:
    here, x = places(torch.arange(6)), numbers(3, 2)
    for weights_in_values in (False, True):
        strength = numbers(6)
        out = multiply(here, strength, x, weights_in_values=weights_in_values).sum()
        with weights_only():
            found = torch.autograd.grad(out, [x, strength], allow_unused=True)
        assert found[0] is not None
        assert (found[1] is not None) is weights_in_values


@pytest.mark.parametrize("backbone", BACKBONES)
def test_it_equals_ours_on_a_graph_that_is_not_all_in_reach(backbone: str) -> None:
    data = in_double(load_graph("cora"))
    setting = Setting(backbone=backbone, hidden=5, tau=2, dropout=0.0, optimizer="sgd")
    case = Case(data, setting)
    part = Reach(case.task, case.task.train)
    assert part.sizes[0] < data.num_nodes
    assert len(part.entries) < case.task.edge_index.shape[1]
    found = case.build("torch").hypergradient()
    assert distance(found, case.build("ours").hypergradient()) < 1e-12


def test_reach_is_what_the_nodes_depend_on() -> None:
    task = tiny_case().task
    nodes = task.train[:2]
    source, target = task.edge_index
    near = set(nodes.tolist())
    sizes = [len(near)]
    for _ in range(2):
        near |= {int(s) for s, t in zip(source, target, strict=True) if int(t) in near}
        sizes.append(len(near))
    part = Reach(task, nodes)
    assert part.sizes == sizes[::-1]
    first, last = part.places
    assert len(first.rows) == len(part.entries) > len(last.rows)
    assert set(target[part.entries[: len(last.rows)]].tolist()) == set(nodes.tolist())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_sparse_and_dense_features_give_the_same(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = tiny_case(backbone=backbone)
    found = []
    for below in (0.0, 2.0):
        monkeypatch.setattr(reach, "_SPARSE_BELOW", below)
        found.append(case.build("torch").hypergradient())
    assert distance(*found) < 1e-12


@pytest.mark.parametrize("backbone", BACKBONES)
def test_it_differentiates_its_own_training_with_dropout(backbone: str) -> None:
    case = tiny_case(backbone=backbone, dropout=0.5, optimizer="sgd", direct_term=True)
    again = case.build("torch").hypergradient()
    units = _unit_vectors(2, again)
    own = _differences(TorchPeer, case.task, case.setting, units)
    assert relative_error(units @ again, own) < 1e-5
    assert torch.equal(again, case.build("torch").hypergradient())
    without = tiny_case(backbone=backbone, optimizer="sgd", direct_term=True)
    assert distance(again, without.build("torch").hypergradient()) > 1e-3


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.8])
def test_dropout_takes_its_share_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    left = dropped(torch.ones(100, 1001), rate)
    assert float((left == 0).double().mean()) == pytest.approx(rate, abs=0.005)
    assert float(left.max()) == pytest.approx(1 / (1 - rate))
    torch.testing.assert_close(dropped(left, 0.0), left)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_it_predicts_every_node_as_pyg_does(backbone: str) -> None:
    case = tiny_case(backbone=backbone, tau=5)
    peer = case.build("torch")
    assert isinstance(peer, TorchPeer)
    strength = peer.strength.detach().clone()
    peer.outer_step()
    trained = replace(case.task, weights=peer.weights())
    network = Network(trained, case.setting).eval()
    expected = network(trained.x, trained.edge_index, strength).argmax(dim=-1)
    assert torch.equal(peer.predict(trained.weights, strength), expected)
