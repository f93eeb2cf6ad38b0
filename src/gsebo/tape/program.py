"""A tape, bound to memory: every run is a list of kernel calls and nothing else."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import final

import torch
from torch import Tensor
from torch.cuda import CUDAGraph, Event, Stream

from gsebo.memory import require_memory
from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.symbol import Attend
from gsebo.tape.bind import Binder
from gsebo.tape.memory import Randomness, Results, StrengthBlocks, Weights
from gsebo.tape.reach import Reach
from gsebo.tape.trace import Tape


def program_bytes(
    tape: Tape,
    reach: Reach,
    *,
    stored_features: int,
    replicas: int,
    lanes: int,
    gradients: bool,
    item: int,
) -> int:
    """Bytes that a program allocates, at most.

    Args:
        tape: The network.
        reach: The nodes it is run for.
        stored_features: Numbers that the features of those nodes hold.
        replicas: Number of seeds.
        lanes: 1, or 2 with tangents.
        gradients: Whether it runs backwards too.
        item: Bytes of one number.
    """
    passes = 2 if gradients else 1
    numbers = stored_features * (replicas + 1)
    indices = 0
    for step, depth in zip(tape.steps, tape.depths, strict=True):
        if step.arguments:
            numbers += passes * replicas * reach.sizes[depth] * lanes * step.channels
        if step.propagates:
            entries = reach.blocks[depth].entries.numel()
            numbers += 2 * replicas * entries
            if isinstance(step.node, Attend):
                numbers += 3 * replicas * entries * lanes * step.node.heads
            # The transpose, the row of each entry, and how rows are dealt out.
            indices += 3 * entries + 2 * reach.sizes[min(depth + 1, reach.depth)]
    size = sum(torch.Size(shape).numel() for shape in tape.shapes.values())
    # The weights, their tangents, the gradients, and a weight beside its tangent.
    numbers += 5 * replicas * size
    return numbers * item + indices * 8


# Two captures on one stream would end up in one graph.
_CAPTURING = Lock()
# A graph of one call is timed this often; the shortest counts.
_ROUNDS = 3


@final
class GraphedCalls:
    """Calls that read and write the same memory every time.

    Args:
        calls: They start kernels and neither wait for the device nor allocate.
        device: Where they start them.
    """

    def __init__(self, calls: Sequence[Call], device: torch.device) -> None:
        self._calls = calls
        self._device = device
        self._graph: CUDAGraph | None = None

    def run(self) -> None:
        """Make all calls, in the stream that is current.

        The first time they are made one by one, because a kernel that is not loaded yet
        cannot be captured; then they are captured, which runs nothing.
        """
        if self._graph is None:
            self._graph = _capture(self._calls, self._device, run_first=True)
        else:
            self._graph.replay()

    def kernel_seconds(self, repeats: int) -> float:
        """Sum of the times that the calls take, each repeated on its own."""
        return sum(self._seconds_of(call, repeats) for call in self._calls)

    def _seconds_of(self, call: Call, repeats: int) -> float:
        call()
        # As a graph: one by one, starting a small kernel takes longer than running it.
        graph = _capture([call] * repeats, self._device, run_first=False)
        taken: list[float] = []
        for _ in range(_ROUNDS):
            begin, end = (
                Event(enable_timing=True)  # type: ignore[no-untyped-call]
                for _ in range(2)
            )
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) / repeats / 1e3)
        return min(taken)


def _capture(
    calls: Sequence[Call], device: torch.device, *, run_first: bool
) -> CUDAGraph:
    graph = CUDAGraph()
    with _CAPTURING, torch.cuda.device(device):
        here, side = torch.cuda.current_stream(), _side_stream(device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            if run_first:
                _make(calls)
            # torch.cuda.graph would collect garbage and empty the cache first, which
            # takes longer than all the rest; nothing is allocated here.
            with _no_garbage_collection():
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    _make(calls)
                finally:
                    graph.capture_end()
        here.wait_stream(side)
    return graph


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A graph that is found to be garbage, and freed now, would break the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _make(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


@cache
def _side_stream(device: torch.device) -> Stream:
    """The one stream for captures; each would have a workspace of its own."""
    return Stream(device)  # type: ignore[no-untyped-call]


@final
class Program:
    """The cross-entropy of some nodes and its gradient by weights and strengths.

    With ``lanes=1`` a run computes the loss and its gradient by the weights (and, if
    asked for, by the strengths ``Z``). With ``lanes=2`` the weights carry a tangent
    ``v``, and a run computes the derivatives of both gradients in the direction ``v``:
    one pass gives ``v . d(grad W)/dW`` and ``v . d(grad W)/dZ``, because second
    derivatives commute. Gradients by strengths add up over runs.

    Args:
        tape: The network.
        reach: The nodes of the loss and their surroundings.
        features: Of all nodes.
        labels: Classes of the nodes of the loss, in their order; without them a run
            only computes ``output``.
        mean: Whether the loss is their mean, or else their sum.
        seeds: One seed per replica.
        lanes: 1 or 2.
        strength_gradient: Whether gradients by strengths are computed.

    Attributes:
        weights: What to load before a run, and the gradient after it.
        strengths: The same for the strengths.
        loss: Of each replica.
        output: Scores of the nodes of the loss, ``[replicas, nodes, classes]``.
    """

    def __init__(
        self,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        labels: Tensor | None,
        *,
        mean: bool,
        seeds: list[int],
        lanes: int,
        strength_gradient: bool,
    ) -> None:
        like = features if isinstance(features, Tensor) else features.values
        needed = program_bytes(
            tape,
            reach,
            stored_features=_stored(features, reach),
            replicas=len(seeds),
            lanes=lanes,
            gradients=labels is not None,
            item=like.element_size(),
        )
        require_memory(needed, like.device)
        self.weights = Weights(tape, len(seeds), lanes, like)
        self.strengths = StrengthBlocks(reach, len(seeds), like)
        self.loss = like.new_zeros(len(seeds))
        self._randomness = Randomness(seeds, like.device)
        results = Results(
            tape, reach, len(seeds), lanes, like, gradients=labels is not None
        )
        binder = Binder(
            tape,
            reach,
            features,
            self.weights,
            self.strengths,
            self._randomness,
            results,
            strength_gradient=strength_gradient,
        )
        calls = binder.forward()
        if labels is not None:
            scale = 1.0 / max(labels.numel(), 1) if mean else 1.0
            calls += binder.backward(labels, scale, self.loss)
        self._calls: CallsInTurn | GraphedCalls
        if like.device.type == "cuda":
            self._calls = GraphedCalls(calls, like.device)
        else:
            self._calls = CallsInTurn(calls)
        self.output = results.value(-1)[:, :, 0]

    def run(self, step: int = 0) -> None:
        """Compute everything for the weights and strengths that are loaded."""
        self._randomness.step.fill_(step)
        self._calls.run()

    def kernel_seconds(self, repeats: int = 20) -> float:
        """Sum over the calls of the shortest time that each took, one by one."""
        return self._calls.kernel_seconds(repeats)


@final
class CallsInTurn:
    """Calls that are made one after the other."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def run(self) -> None:
        """Make all calls."""
        for call in self._calls:
            call()

    def kernel_seconds(self, repeats: int) -> float:
        """Sum over the calls of the shortest time that each took."""
        shortest = [float("inf")] * len(self._calls)
        for _ in range(repeats):
            for number, call in enumerate(self._calls):
                begun = time.perf_counter()
                call()
                taken = time.perf_counter() - begun
                shortest[number] = min(shortest[number], taken)
        return sum(shortest)


def _stored(features: Tensor | SparseFeatures, reach: Reach) -> int:
    """Numbers that the features of the reached nodes hold."""
    if isinstance(features, Tensor):
        return reach.sizes[-1] * features.shape[1]
    return int(features.pattern.row_counts.index_select(0, reach.order).sum())
