"""Kernel calls as one CUDA graph: started at once, whatever their number."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, final

import torch
from torch.cuda import CUDAGraph, Event, Stream

Call = Callable[[], Any]

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
