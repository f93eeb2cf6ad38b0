"""Triton kernels bound to their arguments, and the sizes of their tiles."""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from gsebo.sparse.kernels.drop import Drop

Call = Callable[[], Any]

# Channels of a row that one program takes at most.
_MOST_CHANNELS = 128


def bind(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> Call:
    """Return the call that starts ``programs`` programs of a kernel."""
    if programs == 0:
        return _nothing
    launch = kernel[(programs,)]
    like = next(each for each in arguments if isinstance(each, Tensor))

    def call() -> None:
        with torch.cuda.device_of(like):  # type: ignore[no-untyped-call]
            launch(*arguments, **constants)

    return call


def in_turn(*calls: Call) -> Call:
    """Return one call that makes several, one after the other."""
    needed = [call for call in calls if call is not _nothing]
    if len(needed) == 1:
        return needed[0]

    def call_all() -> None:
        for call in needed:
            call()

    return call_all


def width_of(channels: int) -> int:
    """Width of a tile over so many channels."""
    power: int = triton.next_power_of_2(max(channels, 1))
    return min(power, _MOST_CHANNELS)


def blocks_of(channels: int) -> int:
    """Number of tiles side by side."""
    return tiles_of(channels, width_of(channels))


def tiles_of(size: int, tile: int) -> int:
    """Number of tiles that cover ``size``."""
    return -(-size // tile)


def steps_of(x: Tensor) -> tuple[int, ...]:
    """Distances along all axes but the last; none along a batch of one."""
    first = x.stride(0) if x.shape[0] > 1 else 0
    return first, *x.stride()[1:-1]


def is_aligned(x: Tensor) -> bool:
    """Whether kernels read rows of it several numbers at a time."""
    # Of integers that a kernel is called with it knows whether 16 divides them.
    sizes = (*steps_of(x), x.shape[-1])
    return x.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in sizes)


def registers_of(x: Tensor) -> int:
    """Registers for each number of a tile: its own, and those of its address."""
    return max(x.element_size() // 4, 1) * (1 if is_aligned(x) else 2)


def drop_arguments(drop: Drop | None, device: torch.device) -> tuple[Any, ...]:
    """Seeds, step, positions, site and threshold; anything where none is read."""
    if drop is None:
        unread = torch.zeros(1, dtype=torch.int64, device=device)
        return unread, unread, unread, 0, 1
    return drop.seeds, drop.step, drop.positions, drop.site, drop.threshold


def _nothing() -> None:
    """Start no programs."""
