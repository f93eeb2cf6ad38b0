"""Reverse keeps one step's graph and the iterates it may still need, no more."""

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch

from gsebo.bilevel import Optimizer, Reverse, Unrolled, adam, begin
from gsebo.bilevel.derivatives import graph_bytes

from .toys import Net


class Box:
    """A saved tensor that can be watched."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def peak_saved_tensors(run: Callable[[], object]) -> int:
    """The most tensors that autograd holds for a backward at any one time."""
    live: weakref.WeakSet[Box] = weakref.WeakSet()
    peak = 0

    def pack(tensor: torch.Tensor) -> Box:
        nonlocal peak
        box = Box(tensor)
        live.add(box)
        peak = max(peak, len(live))
        return box

    gc.disable()  # What only a collection would free counts as held.
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
            run()
    finally:
        gc.enable()
    return peak


def peak(engine, steps: int) -> int:
    problem, optimizer = Net(), adam(0.05)
    weights, outer = problem.start()
    start = begin(optimizer, weights)
    return peak_saved_tensors(
        lambda: engine.run(problem, optimizer, start, outer, steps)
    )


def test_graphs_do_not_grow_with_the_steps() -> None:
    assert peak(Reverse(), 24) == peak(Reverse(), 3)
    assert peak(Unrolled(), 24) > 5 * peak(Unrolled(), 3)


def test_graphs_are_kept_as_far_as_they_fit() -> None:
    everything = Reverse(kept_graphs=8)
    assert peak(Reverse(kept_graphs=None), 8) == peak(everything, 8)
    tight = Reverse(kept_graphs=None, graph_memory=1)
    # The watching hooks tie the first graph, which is measured and dropped, into
    # cycles: it is flat, but not quite as low as with a number.
    assert peak(tight, 24) == peak(tight, 3) < peak(Reverse(kept_graphs=2), 8)


def test_the_memory_of_a_graph_is_what_autograd_saved() -> None:
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    y = torch.full((1000,), 2.0, dtype=torch.float64, requires_grad=True)
    assert graph_bytes([x.sum()]) == 0
    assert graph_bytes([(x * y).sum()]) == 2 * 8000
    assert graph_bytes([(x * y).exp().sum()]) == 3 * 8000
    assert graph_bytes([(x * y).sum(), (y * x).sum()]) == 2 * 8000


def test_kept_graphs_bound_the_graphs() -> None:
    assert peak(Reverse(kept_graphs=4), 24) == peak(Reverse(kept_graphs=4), 8)
    assert peak(Reverse(kept_graphs=4), 8) > peak(Reverse(), 8)


def live_iterates(engine: Reverse, steps: int) -> list[int]:
    """How many iterates are alive at each inner step or pullback, as they happen."""
    inner, live, counts = adam(0.05), [], []

    def count() -> None:
        counts.append(sum(reference() is not None for reference in live))

    def update(gradients, state, weights):
        moved, state = inner.update(gradients, state, weights)
        live.append(weakref.ref(moved["first"]))
        count()
        return moved, state

    def pullback(*arguments):
        count()
        return inner.pullback(*arguments)

    problem = Net()
    weights, outer = problem.start()
    watched = Optimizer(inner.init, update, pullback)
    engine.run(problem, watched, begin(watched, weights), outer, steps)
    return counts


@pytest.mark.parametrize("steps", [5, 20, 100])
def test_few_iterates_are_alive_at_a_time(steps: int) -> None:
    counts = live_iterates(Reverse(), steps)
    # Those that are stored, those of one stretch between two of them, and the ends.
    assert max(counts) <= 2 * math.isqrt(steps) + 3
    assert counts[-1] <= math.isqrt(steps) + 2


def test_a_horizon_bounds_the_stored_iterates() -> None:
    assert max(live_iterates(Reverse(horizon=3), 20)) <= 5
