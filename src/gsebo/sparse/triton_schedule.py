"""How the rows of a pattern are dealt out to the programs of a GPU kernel.

Degrees of real graphs follow a power law: most rows have a handful of entries, a few
have a million. So rows are cut into segments of at most 512 entries, and segments of
about the same length are worked on together. Only rows that were cut need a second
pass, which adds their parts in a fixed order.

A schedule depends on the pattern alone. It is built at first use and kept in a weak
dictionary rather than on the pattern: a pattern knows nothing of devices, its copies
and pickles stay small, and a schedule goes when its pattern goes.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gsebo.sparse.pattern import Pattern

# Longest segment of each class.
CLASSES = (512, 256, 128, 64, 32, 16, 8)
# Rows of the last three classes are short.
_SHORT = CLASSES.index(32)
# Rows whose segments are worked on at about the same time, whatever their class, while
# the memory that they share is still in the cache.
_REGION = 2**10
# Entries this close share a sector of memory, or nearly.
_NEAR = 8

Built = TypeVar("Built")


class Segments(NamedTuple):
    """Runs of stored positions of one row each; kernels take them as one argument."""

    begin: Tensor  # first stored position of each
    length: Tensor  # its number of entries; zero for an empty row
    row: Tensor  # the row it belongs to


class SegmentSchedule(NamedTuple):
    """The segments of a pattern: parts of cut rows, other long ones, short ones."""

    segments: Segments
    class_ends: tuple[int, int, int]  # number of parts, with other long ones, of all
    part_begin: Tensor  # first part of each cut row, and ``num_parts`` at the end

    @property
    def num_parts(self) -> int:
        """Number of segments that are parts of a row that was cut."""
        return self.class_ends[0]

    @property
    def num_long(self) -> int:
        """Number of segments of rows with more than 32 entries, parts included."""
        return self.class_ends[1]

    @property
    def num_cut(self) -> int:
        """Number of rows that were cut."""
        return self.part_begin.numel() - 1


def per_pattern(build: Callable[[Pattern], Built]) -> Callable[[Pattern], Built]:
    """Make ``build`` run once for each pattern."""
    known: WeakKeyDictionary[Pattern, Built] = WeakKeyDictionary()

    @wraps(build)
    def look_up(pattern: Pattern) -> Built:
        found = known.get(pattern)
        if found is None:
            found = known[pattern] = build(pattern)
        return found

    return look_up


@per_pattern
def schedule_of(pattern: Pattern) -> SegmentSchedule:
    """Cut the rows of ``pattern`` and order the segments. Waits for the device."""
    counts = pattern.row_counts
    pieces = ((counts + CLASSES[0] - 1) // CLASSES[0]).clamp_(min=1)
    size = int(pieces.sum())
    each = torch.arange(pattern.num_rows, device=pattern.device)
    row = each.repeat_interleave(pieces, output_size=size)
    piece = torch.arange(size, device=pattern.device) - (pieces.cumsum(0) - pieces)[row]
    count, of = counts[row], pieces[row]
    # Parts of equal length: a row of 513 entries makes no part of one entry.
    begin = piece * count // of
    length = (piece + 1) * count // of - begin

    rank = torch.zeros_like(row)
    for shorter in CLASSES[1:]:
        rank += count <= shorter
    # The long ones start first, so that the device is not left waiting for them.
    short = rank >= _SHORT
    group = torch.where(short, (row // _REGION + 1) * len(CLASSES), 0) + rank
    # Parts are at the front of their class.
    order = (2 * group + (of == 1)).argsort(stable=True)

    index = pattern.columns.dtype
    cut = pieces[pieces > 1]
    part_begin = torch.zeros(cut.numel() + 1, dtype=index, device=pattern.device)
    part_begin[1:] = cut.cumsum(0)
    segments = Segments(
        begin=(pattern.indptr[row] + begin)[order].to(index),
        length=length[order].to(torch.int32),
        row=row[order].to(index),
    )
    ends = (int(part_begin[-1]), size - int(short.sum()), size)
    return SegmentSchedule(segments, ends, part_begin)


@per_pattern
def row_of_entry(pattern: Pattern) -> Tensor:
    """Row of each entry, in entry order, as narrow as the other indices."""
    rows = torch.empty_like(pattern.columns)
    rows[pattern.entries.long()] = pattern.rows
    return rows


@per_pattern
def entries_are_scattered(pattern: Pattern) -> bool:
    """Whether entries that follow each other in a row mostly lie apart in memory."""
    steps = pattern.entries.diff().abs_()
    return bool((steps > _NEAR).sum() > steps.numel() // 2)
