"""The largest values of each row, whatever the lengths of the rows."""

import torch
from torch import Tensor

from gsebo.sparse.pattern import Pattern


def row_top(pattern: Pattern, values: Tensor, count: int) -> Tensor:
    """Say which entries are among the ``count`` largest of their row.

    Of equal values, the entry that comes first is the larger one.

    Args:
        pattern: Positions of the entries.
        values: ``[entries]``.
        count: Entries to choose in each row; a shorter row is chosen whole.

    Returns:
        bool ``[entries]``.

    >>> pattern = Pattern.from_positions(torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    >>> row_top(pattern, torch.tensor([0.3, 0.7]), 1)
    tensor([False,  True])
    """
    falling = values.detach().argsort(descending=True, stable=True)
    by_row = pattern.row_of_entry[falling].argsort(stable=True)
    entry = falling[by_row]
    # Now entries lie as the pattern stores them, row after row.
    begin = pattern.indptr[pattern.rows.long()]
    rank = torch.arange(len(entry), device=entry.device) - begin
    chosen = torch.empty_like(entry, dtype=torch.bool)
    chosen[entry] = rank < count
    return chosen
