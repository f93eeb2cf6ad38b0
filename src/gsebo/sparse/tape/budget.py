"""How much memory a program takes, and whether there is as much, before it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from gsebo.errors import InvalidInput
from gsebo.sparse.symbol import Attend
from gsebo.sparse.tape.reach import Reach
from gsebo.sparse.tape.trace import Tape

_MEMORY_INFO = Path("/proc/meminfo")


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


def require_memory(needed: int, device: torch.device) -> None:
    """Refuse what does not fit, in one sentence and before anything is allocated."""
    free = free_memory(device)
    if free is not None and needed > free:
        raise InvalidInput(
            f"training takes about {needed / 1e9:.1f} GB more on {device}, where "
            f"{free / 1e9:.1f} GB are free; expected a smaller graph, fewer channels "
            "or replicas, or more memory."
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated, or None where the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds without using it is free as well.
        reserved = torch.cuda.memory_reserved(device)
        return free + reserved - torch.cuda.memory_allocated(device)
    if _MEMORY_INFO.is_file():
        for line in _MEMORY_INFO.read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
