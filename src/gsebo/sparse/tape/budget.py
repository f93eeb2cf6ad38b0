"""How much memory a program takes, before it is taken."""

from __future__ import annotations

import torch

from gsebo.sparse.symbol import Attend
from gsebo.sparse.tape.reach import Reach
from gsebo.sparse.tape.trace import Tape


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
