"""Kernel calls as one CUDA graph: starting them one by one would take longer."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import final

import torch
from torch.cuda import CUDAGraph, Event, Stream

from gsebo.sparse.backend import Call

# Two captures on one stream would end up in one graph.
_CAPTURING = Lock()
# A graph of one call is timed this often; the shortest counts.
_ROUNDS = 3


def make_calls(calls: Sequence[Call]) -> None:
    """Make them one after the other."""
    for call in calls:
        call()


@final
class GraphOfCalls:
    """Calls that become one graph.

    The first time they are made one by one, as a kernel that is not loaded yet cannot
    be captured; then they are captured, which runs nothing.
    """

    def __init__(self, calls: Sequence[Call], device: torch.device) -> None:
        self._calls, self._device = calls, device
        self._graph: CUDAGraph | None = None

    def __call__(self) -> None:
        """Make them, in the stream that is current."""
        if self._graph is None:
            self._graph = capture(self._calls, self._device, run_first=True)
        else:
            self._graph.replay()


def seconds_on_device(call: Call, device: torch.device, repeats: int) -> float:
    """The shortest time that a call took, as a mean over so many in a row."""
    call()
    # As a graph: one by one, starting a small kernel takes longer than running it.
    graph = capture([call] * repeats, device, run_first=False)
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


def capture(
    calls: Sequence[Call], device: torch.device, *, run_first: bool
) -> CUDAGraph:
    """Make a graph of calls that neither wait for the device nor allocate."""
    graph = CUDAGraph()
    with _CAPTURING, torch.cuda.device(device):
        here, side = torch.cuda.current_stream(), _side_stream(device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            if run_first:
                make_calls(calls)
            # torch.cuda.graph would collect garbage and empty the cache first, which
            # takes longer than all the rest; nothing is allocated here. But a graph
            # that is found to be garbage, and freed now, would break the capture.
            collected = gc.isenabled()
            gc.disable()
            try:
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    make_calls(calls)
                finally:
                    graph.capture_end()
            finally:
                if collected:
                    gc.enable()
        here.wait_stream(side)
    return graph


@cache
def _side_stream(device: torch.device) -> Stream:
    """The one stream for captures; each would have a workspace of its own."""
    return Stream(device)  # type: ignore[no-untyped-call]
