"""Time several calls in turns, so that a busy moment of the machine meets them all."""

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from benchmarks.process_memory import unless_out_of_memory


@dataclass(eq=False)
class Lane:
    """One contender's call and what it took.

    Attributes:
        call: What is timed.
        threads: Entered around each call, outside the time.
        device: Where the call computes.
        seconds: One number per round.
        processor_seconds: What the process used of its processors meanwhile: less than
            the seconds where other work took turns, and where the device is a GPU.
    """

    call: Callable[[], object]
    threads: Callable[[], AbstractContextManager[None]] = nullcontext
    device: str = "cpu"
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)

    def time_once(self) -> tuple[float, float]:
        """Time one call, from an idle device to an idle device.

        Returns:
            Seconds, and seconds of processors.
        """
        gc.collect()
        with self.threads():
            _wait(self.device)
            begun, used = time.perf_counter(), time.process_time()
            self.call()
            _wait(self.device)
            return time.perf_counter() - begun, time.process_time() - used


def take_turns(lanes: dict[str, Lane], rounds: int) -> None:
    """Time every lane once per round; one that runs out of memory is taken out."""
    for _ in range(rounds):
        for name, lane in list(lanes.items()):
            timed = unless_out_of_memory(lane.time_once)
            if timed is None:
                del lanes[name]
                continue
            lane.seconds.append(timed[0])
            lane.processor_seconds.append(timed[1])


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
