"""What methods share that train on batches of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.formats.npy_stream import open_output
from gsebo.distributed.process_group import current_group
from gsebo.distributed.tables import EntryTable, entry_table
from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.loader.registry import make_sampler
from gsebo.loader.sampler import Sampler
from gsebo.nn import Backbone
from gsebo.structure.in_parts import StructureInParts
from gsebo.training.batched_graph import BatchedGraph, Nodes

Array = NDArray[Any]

# Entries of a table that are read at once.
_PIECE = 2**20


@final
@dataclass(frozen=True)
class BatchChoices:
    """How batches are drawn, as an estimator's parameters say it.

    Attributes:
        batch_size: Size of a batch, in the sampler's unit.
        sampler: Name or instance.
        batches_per_step: How many batches make one step; processes share them.
    """

    batch_size: int
    sampler: str | Sampler
    batches_per_step: int

    def graph(
        self,
        arrays: GraphArrays,
        backbone: Backbone,
        structure: StructureInParts,
        *,
        weight_decay: float,
        seed: int,
        device: torch.device,
    ) -> BatchedGraph:
        """Get ready to draw batches of a graph."""
        sampler = make_sampler(self.sampler).bind(
            arrays,
            num_layers=backbone.num_propagations,
            batch_size=self.batch_size,
            seed=seed,
        )
        return BatchedGraph(
            arrays=arrays,
            sampler=sampler,
            backbone=backbone,
            structure=structure,
            weight_decay=weight_decay,
            seed=seed,
            device=device,
            batches_per_step=self.batches_per_step,
            group=current_group(device.type),
        )


class OnBatches(Protocol):
    """An estimator that can train on batches."""

    batch_size: int | None
    sampler: str | Sampler
    batches_per_step: int
    shard_strengths: bool


def batch_choices(estimator: OnBatches) -> BatchChoices:
    """How batches are drawn."""
    assert estimator.batch_size is not None
    return BatchChoices(
        estimator.batch_size, estimator.sampler, estimator.batches_per_step
    )


def check_batches(estimator: OnBatches, **only: tuple[object, object]) -> None:
    """Raise for what batches cannot do, and for what only they can.

    Args:
        estimator: With or without a ``batch_size``.
        **only: Parameters with what is given and the only value that batches can do.
    """
    make_sampler(estimator.sampler)
    if estimator.batch_size is None:
        if estimator.shard_strengths:
            raise InvalidInput(
                "shard_strengths=True given without batch_size; expected a batch_size."
            )
        return
    for name, (given, expected) in only.items():
        if given != expected:
            raise InvalidInput(
                f"{name}={given!r} given with batch_size; expected {expected!r}, or "
                "no batch_size."
            )


def table_for(
    graph: BatchedGraph,
    columns: dict[str, tuple[int, ...]],
    folder: Path | None = None,
    *,
    sharded: bool = False,
) -> EntryTable | None:
    """A table for what each entry of the graph has of its own, if it has anything.

    Args:
        graph: The graph.
        columns: What is kept, with leading axes.
        folder: Where to keep it; in memory by default.
        sharded: Give each process a share instead of the whole.
    """
    if not columns:
        return None
    loops = graph.arrays.num_nodes if graph.structure.loops else 0
    total = graph.arrays.num_edges + loops
    dtype = graph.arrays.dtype
    return entry_table(
        columns, total, graph.group, sharded=sharded, dtype=dtype, folder=folder
    )


def numbers(mask: Tensor | np.ndarray) -> Nodes:
    """Numbers of the nodes of a mask."""
    found: Nodes = np.flatnonzero(np.asarray(mask))
    return found


def whole_column(table: EntryTable, name: str) -> Array:
    """A column of a table as one array, ``[..., entries]``.

    All processes take part, and all get it.
    """
    pieces = []
    for begin in range(0, table.total, _PIECE):
        ids = torch.arange(begin, min(begin + _PIECE, table.total))
        pieces.append(table.take(ids, [name])[name].numpy())
        table.release()
    return np.concatenate(pieces, axis=-1)


def column_on_disk(table: EntryTable, name: str, files: ScratchFolder) -> Array:
    """The same in a file, mapped."""
    path = files.path / f"{name}.npy"
    with open_output(path, (*table.columns[name], table.total), _kind(table)) as out:
        for begin in range(0, table.total, _PIECE):
            ids = torch.arange(begin, min(begin + _PIECE, table.total))
            found = table.take(ids, [name])[name].numpy()
            out[..., begin : begin + len(ids)] = found
            table.release()
            release(out)
    mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _kind(table: EntryTable) -> np.dtype[Any]:
    return torch.empty(0, dtype=table.dtype).numpy().dtype
