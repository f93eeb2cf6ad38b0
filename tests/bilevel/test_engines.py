import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsebo.bilevel import (
    HYPERGRADIENTS,
    OPTIMIZERS,
    FirstOrder,
    Reverse,
    Unrolled,
    adam,
    begin,
    check_problem,
    make_hypergradient,
    make_optimizer,
    sgd,
)

from .toys import Net, Quadratic, assert_trees_close

ENGINES = list(HYPERGRADIENTS)


@given(
    name=st.sampled_from(list(OPTIMIZERS)),
    direct_term=st.booleans(),
    steps=st.integers(1, 9),
    kept_graphs=st.one_of(st.none(), st.integers(1, 12)),
    seed=st.integers(0, 1000),
    pullback=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_reverse_equals_unrolled(
    name: str,
    direct_term: bool,
    steps: int,
    kept_graphs: int | None,
    seed: int,
    pullback: bool,
) -> None:
    problem, optimizer = Net(), make_optimizer(name, 0.05)
    weights, outer = problem.start(seed)
    start = begin(optimizer, weights, step=3)
    oracle = Unrolled(direct_term).run(problem, optimizer, start, outer, steps)
    if not pullback:
        optimizer = optimizer._replace(pullback=None)
    engine = Reverse(direct_term, kept_graphs=kept_graphs)
    ours = engine.run(problem, optimizer, start, outer, steps)
    assert_trees_close(ours.gradient, oracle.gradient)
    # To rounding: the fused step of the CPU is not what autograd records.
    assert_trees_close(ours.iterate.weights, oracle.iterate.weights, 1e-12)
    assert_trees_close(ours.iterate.state.slots, oracle.iterate.state.slots, 1e-12)
    assert ours.iterate.step == oracle.iterate.step == 3 + steps
    assert ours.iterate.state.count == oracle.iterate.state.count == steps
    torch.testing.assert_close(ours.outer_loss, oracle.outer_loss)
    assert len(ours.inner_losses) == steps
    torch.testing.assert_close(ours.inner_losses, oracle.inner_losses)


@pytest.mark.parametrize("direct_term", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("engine", [Reverse, Unrolled])
def test_equals_finite_differences(engine, name: str, direct_term: bool) -> None:
    problem = Net()
    check = check_problem(
        problem,
        make_optimizer(name, 0.05),
        *problem.start(),
        6,
        hypergradient=engine(direct_term),
    )
    check.raise_if_worse_than(1e-6)


@given(steps=st.integers(1, 12), seed=st.integers(0, 99), direct_term=st.booleans())
@settings(deadline=None, max_examples=20)
def test_closed_form_of_descent(steps: int, seed: int, direct_term: bool) -> None:
    problem = Quadratic.make(seed=seed)
    weights, outer = problem.start(seed)
    end, slope = problem.sgd_answer(weights["w"], outer["z"], 0.1, steps)
    expected = (end - problem.target) @ slope + direct_term * problem.direct
    for engine in (Reverse(direct_term), Unrolled(direct_term)):
        gradient, moved, loss = engine(problem, sgd(0.1), weights, outer, steps)
        assert_trees_close({"z": expected, "w": end}, gradient | moved)
        torch.testing.assert_close(loss, problem.outer_loss({"w": end}, outer))


@pytest.mark.parametrize("horizon", [6, 7, 100])
def test_horizon_of_all_steps_is_reverse(horizon: int) -> None:
    problem = Net()
    arguments = (problem, adam(0.05), *problem.start(), 6)
    truncated = make_hypergradient("truncated", direct_term=True, horizon=horizon)
    assert_trees_close(truncated(*arguments)[0], Reverse()(*arguments)[0], 0)


def test_short_horizon_is_reverse_from_the_later_start() -> None:
    problem, optimizer = Net(), adam(0.05)
    weights, outer = problem.start()
    start = begin(optimizer, weights)
    middle = Reverse().run(problem, optimizer, start, outer, 5).iterate
    last = Reverse().run(problem, optimizer, middle, outer, 3)
    for kept_graphs in (1, 2, 9, None):
        engine = Reverse(horizon=3, kept_graphs=kept_graphs)
        truncated = engine.run(problem, optimizer, start, outer, 8)
        assert_trees_close(truncated.gradient, last.gradient, 1e-13)
        assert_trees_close(truncated.iterate.weights, last.iterate.weights, 0)
        assert len(truncated.inner_losses) == 8


def test_first_order_is_the_direct_term() -> None:
    problem = Quadratic.make()
    weights, outer = problem.start()
    gradient, moved, _ = FirstOrder()(problem, sgd(0.1), weights, outer, 4)
    assert_trees_close(gradient, {"z": problem.direct}, 0)
    end, _ = problem.sgd_answer(weights["w"], outer["z"], 0.1, 4)
    assert_trees_close(moved, {"w": end})


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ENGINES)
def test_resumes_where_it_stopped(name: str, optimizer: str) -> None:
    problem, update = Net(), make_optimizer(optimizer, 0.05)
    weights, outer = problem.start()
    engine = make_hypergradient(name, direct_term=False)
    whole = engine.run(problem, update, begin(update, weights), outer, 12)
    half = engine.run(problem, update, begin(update, weights), outer, 6)
    rest = engine.run(problem, update, half.iterate, outer, 6)
    assert_trees_close(rest.iterate.weights, whole.iterate.weights, 0)
    assert_trees_close(rest.iterate.state.slots, whole.iterate.state.slots, 0)
    assert rest.iterate.step == whole.iterate.step == 12
    assert half.inner_losses + rest.inner_losses == whole.inner_losses


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("name", ENGINES)
def test_leaves_inputs_alone_and_returns_no_graph(name: str, recording: bool) -> None:
    problem, optimizer = Net(), adam(0.05)
    weights, outer = problem.start()
    inputs = [leaf.requires_grad_() for leaf in (weights | outer).values()]
    copies = [leaf.detach().clone() for leaf in inputs]
    start = begin(optimizer, weights)
    slots = {k: s.clone() for k, s in start.state.slots.items()}
    engine = make_hypergradient(name, direct_term=True)
    with torch.set_grad_enabled(recording):
        result = engine.run(problem, optimizer, start, outer, 3)
        assert torch.is_grad_enabled() == recording
    for leaf, copy in zip(inputs, copies, strict=True):
        assert torch.equal(leaf, copy) and leaf.requires_grad and leaf.grad is None
    assert_trees_close(start.state.slots, slots, 0)
    end = result.iterate
    for leaf in (result.gradient | end.weights | end.state.slots).values():
        assert not leaf.requires_grad
    assert not any(x.requires_grad for x in [result.outer_loss, *result.inner_losses])
    assert {k: v.shape for k, v in result.gradient.items()} == {
        k: v.shape for k, v in outer.items()
    }
