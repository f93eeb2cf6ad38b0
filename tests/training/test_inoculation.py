"""Weights that learn on one graph and are judged on another with false edges."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.bilevel import check_problem, make_optimizer
from gsebo.graph.topology import Topology
from gsebo.structure import AmortisedStrength
from gsebo.training.inoculation import Inoculation, JudgedElsewhere, false_edges
from gsebo.training.problem import NodeClassification

from .test_networks import base_of, data, guesses_for

__all__ = ["data"]


def laid_out(data: Data, edge_index: Tensor) -> Topology:
    return Topology.from_edges(
        edge_index, data.num_nodes, self_loops=True, device="cpu"
    )


def structure_of(base: NodeClassification) -> AmortisedStrength:
    assert isinstance(base.structure, AmortisedStrength)
    return base.structure


def inoculated(data: Data, *, dose: float = 1.0, number: int = 0) -> JudgedElsewhere:
    base, guess = base_of(data, residual=True), guesses_for(data, 1)[0]
    inoculation = Inoculation(
        base,
        structure_of(base),
        lambda edges: laid_out(data, edges),
        dose=dose,
        seed=0,
    )
    found = inoculation.problem(base, number, lambda problem: (guess, guess))
    assert isinstance(found, JudgedElsewhere)
    return found


@given(st.integers(0, 2**31), st.floats(0.1, 3))
def test_false_edges_join_other_classes(seed: int, dose: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    classes = torch.randint(3, (50,), generator=rng)
    degree = torch.randint(6, (50,), generator=rng)
    nodes = torch.arange(0, 50, 2)
    drawn = false_edges(nodes, classes, degree, dose, rng)
    assert torch.isin(drawn[0], nodes).all()
    assert (classes[drawn[0]] != classes[drawn[1]]).all()
    assert (drawn[0] != drawn[1]).all()


def test_a_dose_is_the_mean_number_for_each_edge() -> None:
    rng = torch.Generator().manual_seed(0)
    nodes, degree = torch.arange(4000), torch.full((4000,), 4)
    drawn = false_edges(nodes, torch.arange(4000), degree, 0.5, rng)
    counts = drawn[0].bincount(minlength=4000).double()
    assert float(counts.mean()) == pytest.approx(0.5 * 4, rel=0.1)
    # From none to many: the spread is larger than that of a fixed rate.
    assert float(counts.var()) > 2 * float(counts.mean())
    assert (counts == 0).any()


def test_a_class_that_all_nodes_share_gets_none() -> None:
    rng = torch.Generator().manual_seed(0)
    same = torch.zeros(10, dtype=torch.int64)
    drawn = false_edges(torch.arange(10), same, same + 3, 2.0, rng)
    assert drawn.shape == (2, 0)


def test_every_outer_step_draws_anew_and_can_be_repeated(data: Data) -> None:
    first, again, other = (
        inoculated(data, number=number).judged.graph.graph.edge_index
        for number in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    given = base_of(data).graph.num_edges
    assert first.shape[1] > given


def test_weights_learn_on_the_given_graph(data: Data) -> None:
    problem = inoculated(data)
    weights, outer = problem.given.initial_weights(), problem.given.initial_outer()
    loss = problem.inner_loss(weights, outer, 0)
    assert torch.equal(loss, problem.given.inner_loss(weights, outer, 0))
    judged = problem.outer_loss(weights, outer)
    assert not torch.equal(judged, problem.given.outer_loss(weights, outer))


def test_its_hypergradient_is_that_of_finite_differences(data: Data) -> None:
    problem = inoculated(data)
    optimizer = make_optimizer("adam", 0.05)
    weights, outer = problem.given.initial_weights(), problem.given.initial_outer()
    rng = torch.Generator().manual_seed(3)
    moved = {
        name: leaf + 0.1 * torch.randn(leaf.shape, generator=rng, dtype=leaf.dtype)
        for name, leaf in outer.items()
    }
    found = check_problem(problem, optimizer, weights, moved, steps=4)
    found.raise_if_worse_than(1e-6)


def test_on_the_given_edges_the_function_is_what_it_was(data: Data) -> None:
    base = base_of(data, residual=True)
    structure, guess = structure_of(base), guesses_for(data, 1)[0]
    with torch.no_grad():
        structure.output.normal_()
        structure.own.normal_()
    again = laid_out(data, base.graph.graph.edge_index)
    other = structure.with_edges(again, base.graph, base.features)
    state = guess, guess
    assert torch.equal(other(again, state), structure(base.graph, state))


def test_new_edges_have_nothing_of_their_own_and_degrees_stay(data: Data) -> None:
    base = base_of(data, residual=True)
    structure = structure_of(base)
    edges = base.graph.graph.edge_index
    keys = set(map(tuple, edges.T.tolist()))
    target = next(n for n in range(1, data.num_nodes) if (0, n) not in keys)
    absent = torch.tensor([[0, target], [target, 0]])
    graph = laid_out(data, torch.cat([edges, absent], dim=1))
    with torch.no_grad():
        structure.own.fill_(5.0)
    other = structure.with_edges(graph, base.graph, base.features)
    new = torch.tensor(
        [tuple(pair) not in keys for pair in graph.graph.edge_index.T.tolist()]
    )
    assert int(new.sum()) == 2
    column = structure.columns.index("target_degree")
    assert torch.equal(other.evidence[~new, column], structure.evidence[:, column])
    weights = other(graph, None, normalised=False)
    assert (weights[new] == 1).all() and (weights[~new] > 1).all()
