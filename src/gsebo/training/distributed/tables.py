"""Tables of numbers per edge: whole in every process, or shared out."""

from pathlib import Path

import torch

from gsebo.training.distributed.entries import Columns
from gsebo.training.distributed.group import Group, share
from gsebo.training.distributed.local_table import LocalTable as LocalTable
from gsebo.training.distributed.sharded_table import ShardedTable as ShardedTable
from gsebo.training.distributed.table import EntryTable as EntryTable


def entry_table(
    columns: Columns,
    total: int,
    group: Group,
    *,
    sharded: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
) -> EntryTable:
    """Make a table of zeros for a group.

    Args:
        columns: Axes before the entries, of each name: ``()`` or ``(layers,)``.
        total: Number of entries.
        group: Who shares it.
        sharded: Give each process a share instead of the whole.
        dtype: Type of all numbers.
        device: Where they are.
        folder: Keep them in files there, of each process its own; ``None``: in memory.
    """
    table = LocalTable(
        columns,
        len(share(total, group)) if sharded else total,
        dtype=dtype,
        device=device,
        group=group,
        folder=None if folder is None else folder / f"rank-{group.rank}",
    )
    return ShardedTable(table, total, group) if sharded else table
