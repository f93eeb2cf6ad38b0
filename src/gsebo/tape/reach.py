"""Which nodes an output depends on, and the part of the graph that carries it."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse.pattern import Pattern


class ReachBlock(NamedTuple):
    """One propagation, restricted to the rows that matter.

    Attributes:
        pattern: Its entries in CSR order; rows and columns count along ``Reach.order``.
        entries: Which entry of the whole pattern each of them is, int64.
    """

    pattern: Pattern
    entries: Tensor


@final
class Reach:
    """The nodes within 0, 1, 2 ... propagations of some output nodes.

    The loss of a few labelled nodes depends on their surroundings only. The nodes are
    listed by distance, so that those within ``k`` propagations are the first
    ``sizes[k]``, and whatever is needed for fewer nodes is a slice of the rest.

    Attributes:
        order: Nodes by distance and then by number, int64.
        sizes: How many of them are within 0, 1, 2 ... propagations.
        blocks: ``blocks[k]`` propagates from the first ``sizes[k + 1]`` nodes to the
            first ``sizes[k]``.
        whole_entries: Number of entries of the whole pattern.

    >>> path = Pattern.from_positions(torch.tensor([0, 1]), torch.tensor([1, 2]), 3)
    >>> Reach(path, torch.tensor([1]), 1).order.tolist()
    [1, 2]
    """

    def __init__(self, pattern: Pattern, outputs: Tensor, depth: int) -> None:
        if pattern.num_rows != pattern.num_columns:
            raise InvalidInput(f"{pattern!r} given, expected a square one")
        outputs = outputs.to(pattern.device, torch.int64)
        place = outputs.new_full((pattern.num_rows,), -1)
        place[outputs] = torch.arange(outputs.numel(), device=outputs.device)
        if int((place >= 0).sum()) != outputs.numel():
            raise InvalidInput("an output node is given twice, expected distinct ones")
        self.whole_entries = pattern.num_entries
        self.order = outputs
        self.sizes = [outputs.numel()]
        self.blocks: list[ReachBlock] = []
        self._rows: dict[tuple[int, int], tuple[Pattern, ReachBlock]] = {}
        cuts: list[_Cut] = []
        for _ in range(depth):
            if cuts and self.sizes[-1] == self.sizes[-2]:
                # Nothing new was found: from here on all blocks are the same.
                self.sizes.append(self.sizes[-1])
                continue
            cut = _entries_of_rows(pattern, self.order)
            found = torch.zeros_like(place, dtype=torch.bool)
            found[cut.columns] = True
            new = (found & (place < 0)).nonzero().squeeze(-1)
            start = self.sizes[-1]
            place[new] = torch.arange(start, start + new.numel(), device=new.device)
            self.order = torch.cat([self.order, new])
            self.sizes.append(self.order.numel())
            cuts.append(cut)
        for cut, rows, columns in zip(cuts, self.sizes, self.sizes[1:], strict=False):
            self.blocks.append(_block(cut, place, rows, columns))
        self.blocks += self.blocks[-1:] * (depth - len(cuts))

    def rows_of(self, pattern: Pattern, size: int) -> ReachBlock:
        """The rows of another pattern for the first ``size`` nodes; made only once."""
        key = id(pattern), size
        if key not in self._rows:
            # The pattern is kept too, so that no other can get its number.
            self._rows[key] = pattern, leading_rows(pattern, self.order[:size])
        return self._rows[key][1]

    @property
    def depth(self) -> int:
        """Number of propagations."""
        return len(self.blocks)


class _Cut(NamedTuple):
    """Entries of chosen rows, row after row."""

    counts: Tensor
    columns: Tensor
    entries: Tensor


def _entries_of_rows(pattern: Pattern, rows: Tensor) -> _Cut:
    start = pattern.indptr.index_select(0, rows)
    counts = pattern.indptr.index_select(0, rows + 1) - start
    total = int(counts.sum())
    # The position of an entry is the start of its row plus its rank inside the row.
    before = counts.cumsum(0) - counts
    shift = torch.repeat_interleave(start - before, counts, output_size=total)
    positions = shift + torch.arange(total, device=rows.device)
    return _Cut(
        counts,
        pattern.columns.index_select(0, positions).long(),
        pattern.entries.index_select(0, positions).long(),
    )


def _block(cut: _Cut, place: Tensor, rows: int, columns: int) -> ReachBlock:
    indptr = cut.counts.new_zeros(rows + 1)
    torch.cumsum(cut.counts, 0, out=indptr[1:])
    index = Pattern.index_dtype(max(cut.columns.numel(), rows, columns))
    number = torch.arange(cut.columns.numel(), device=place.device, dtype=index)
    own = place.index_select(0, cut.columns).to(index)
    return ReachBlock(Pattern(rows, columns, indptr, own, number), cut.entries)


def leading_rows(pattern: Pattern, rows: Tensor) -> ReachBlock:
    """Take ``rows`` out of a pattern, in their order; all columns stay."""
    cut = _entries_of_rows(pattern, rows)
    everywhere = torch.arange(pattern.num_columns, device=rows.device)
    return _block(cut, everywhere, rows.numel(), pattern.num_columns)
