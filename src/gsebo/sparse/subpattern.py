"""Some entries of a pattern as a pattern of their own, without sorting."""

import torch
from torch import Tensor

from gsebo.sparse.pattern import Pattern


def subpattern(pattern: Pattern, kept: Tensor) -> Pattern:
    """Leave out the entries that are not ``kept``; the others keep their order.

    The transpose comes with it, by the same linear pass. It is for training steps that
    see another graph each: nothing is sorted.

    Args:
        pattern: Positions of all entries.
        kept: bool ``[entries]``.

    >>> pattern = Pattern.from_positions(torch.tensor([1, 0]), torch.tensor([0, 1]), 2)
    >>> subpattern(pattern, torch.tensor([False, True])).row_of_entry.tolist()
    [0]
    """
    number = kept.cumsum(0) - 1
    part = _rows_of_kept(pattern, kept, number)
    return part.with_transpose(_rows_of_kept(pattern.T, kept, number))


def _rows_of_kept(pattern: Pattern, kept: Tensor, number: Tensor) -> Pattern:
    """The kept entries, row by row, under their new numbers."""
    stays = kept.index_select(0, pattern.entries)
    chosen = stays.nonzero().squeeze(-1)
    before = torch.nn.functional.pad(stays.cumsum(0), (1, 0))
    entries = number.index_select(0, pattern.entries.index_select(0, chosen))
    return Pattern(
        pattern.num_rows,
        pattern.num_columns,
        before.index_select(0, pattern.indptr),
        pattern.columns.index_select(0, chosen),
        entries.to(pattern.entries.dtype),
    )
