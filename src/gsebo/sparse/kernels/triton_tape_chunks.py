"""Sums over many rows in a fixed order: chunk by chunk, then over the chunks."""

from typing import NamedTuple

from torch import Tensor

from gsebo.sparse.kernels import triton_tape_rows
from gsebo.sparse.kernels.triton_tape_launch import Call, bind, steps_of, tiles_of

# Enough chunks to fill a large device, and few enough to be summed by one program.
_MOST = 1024
# Sums side by side that one program makes, and numbers that it holds.
_WIDTH, _NUMBERS = 16, 2048


class Chunks(NamedTuple):
    """How rows are cut into chunks.

    Attributes:
        number: How many there are.
        steps: Tiles of each, one below the other.
    """

    number: int
    steps: int


def chunks_of(rows: int, tile: int) -> Chunks:
    """Cut ``rows`` rows into chunks of whole tiles."""
    tiles = tiles_of(rows, tile)
    steps = max(tiles_of(tiles, _MOST), 1)
    return Chunks(tiles_of(tiles, steps), steps)


def bind_chunk_sums(parts: Tensor, out: Tensor, *, add: bool) -> Call:
    """``out = parts.sum(1)``, or the same added.

    Args:
        parts: ``[replicas, chunks, width]``.
        out: ``[replicas, width]``; replicas may lie apart.
        add: Whether to add.
    """
    replicas, chunks, size = parts.shape
    width = min(_WIDTH, size)
    width = 1 << (width - 1).bit_length()
    return bind(
        triton_tape_rows.sum_chunks,
        tiles_of(size, width) * replicas,
        parts,
        out,
        steps_of(out)[0],
        chunks,
        size,
        replicas,
        ADD=add,
        ROWS=_NUMBERS // width,
        WIDTH=width,
    )
