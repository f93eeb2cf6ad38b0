"""Steps that compiled code takes at once are those that are taken one by one."""

from typing import Any

import pytest
import torch

from gsebo import GSEBO, generate_graph
from gsebo.bilevel import Optimizer, Reverse, adam, begin, scheduled
from gsebo.bilevel.derivatives import descend
from gsebo.bilevel.hypergradient import HypergradientStep
from gsebo.methods.fitting import PreparedGraph
from gsebo.training import NodeClassification, compiled_steps
from gsebo.training.problem import Stack

pytestmark = pytest.mark.compiles
STEPS = 7


def problem_of(seed: int = 3, **options: Any) -> NodeClassification:
    graph = generate_graph(
        60, num_classes=3, average_degree=3.0, seed=0, split="random:15/25/60"
    )
    graph.x = graph.x * (graph.x.abs() > 1.6)
    model = GSEBO(hidden_channels=5, dropout=0.4, weight_decay=0.01, **options)
    return model.make_problem(PreparedGraph(graph, torch.device("cpu")), seed)


def run(
    problem: NodeClassification | Stack, optimizer: Optimizer, engine: Reverse
) -> HypergradientStep:
    """Two outer steps, so that the second begins with moments."""
    single = isinstance(problem, NodeClassification)
    first = problem if single else problem._first
    weights, outer = first.initial_weights(), first.initial_outer()
    if not single:
        weights = {name: leaf.repeat(3, 1) for name, leaf in weights.items()}
        outer = {name: leaf.repeat(3, 1) for name, leaf in outer.items()}
    iterate = begin(optimizer, weights, step=2)
    for _ in range(2):
        found = engine.run(problem, optimizer, iterate, outer, STEPS)
        iterate = found.iterate
    return found


def assert_same(found: HypergradientStep, expected: HypergradientStep) -> None:
    assert found.iterate.step == expected.iterate.step
    assert found.iterate.state.count == expected.iterate.state.count
    trees = [(found.gradient, expected.gradient)]
    trees += [(found.iterate.weights, expected.iterate.weights)]
    trees += [(found.iterate.state.slots, expected.iterate.state.slots)]
    for one, other in trees:
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(found.outer_loss, expected.outer_loss)
    assert torch.equal(
        torch.stack(found.inner_losses), torch.stack(expected.inner_losses)
    )


@pytest.mark.parametrize("memory", [2**30, 0])
@pytest.mark.parametrize("horizon", [None, 5, 1])
@pytest.mark.parametrize("replicas", [1, 3])
def test_they_have_the_bits_of_single_steps(
    memory: int, horizon: int | None, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_steps, "_MEMORY", memory)
    monkeypatch.setattr(compiled_steps, "_FEW", 0)
    problem: Any = problem_of()
    if replicas > 1:
        problem = Stack([problem_of(seed) for seed in range(replicas)])
    engine, optimizer = Reverse(horizon=horizon), adam(0.01)
    assert_same(
        run(problem, optimizer, engine),
        run(problem, optimizer._replace(adam=None), engine),
    )


def test_training_alone_has_the_same_bits() -> None:
    problem, optimizer = problem_of(backbone="sage"), adam(0.01)
    start = begin(optimizer, problem.initial_weights())
    found = []
    for each in (optimizer, optimizer._replace(adam=None)):
        derivatives = problem.derivatives(problem.initial_outer())
        found.append(descend(derivatives, each, start, STEPS))
    (one, losses), (other, expected) = found
    assert torch.equal(one.weights["weights"], other.weights["weights"])
    assert torch.equal(torch.stack(losses), torch.stack(expected))


def test_what_is_given_and_returned_stays_as_it_is() -> None:
    problem, optimizer = problem_of(), adam(0.01)
    outer, start = problem.initial_outer(), begin(optimizer, problem.initial_weights())
    first = Reverse().run(problem, optimizer, start, outer, STEPS)
    kept = {name: leaf.clone() for name, leaf in first.iterate.weights.items()}
    again = Reverse().run(problem, optimizer, start, outer, STEPS)
    Reverse().run(problem, optimizer, again.iterate, outer, STEPS)
    assert_same(first, again)
    assert all(torch.equal(first.iterate.weights[name], kept[name]) for name in kept)


def test_only_plain_adam_is_compiled() -> None:
    problem = problem_of()
    derivatives = problem.derivatives(problem.initial_outer())
    halving = scheduled(adam(0.01), lambda count: 0.5**count)
    assert derivatives.compiled(halving, STEPS, STEPS) is None
    assert derivatives.compiled(adam(0.01), STEPS, STEPS) is not None
