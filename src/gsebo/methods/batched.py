"""What methods share that train on batches of a graph."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.formats.npy_stream import open_output
from gsebo.distributed.group import current_group
from gsebo.distributed.tables import EntryTable
from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.loader.registry import make_sampler
from gsebo.loader.sampler import Sampler
from gsebo.methods.run import Run
from gsebo.nn import Backbone
from gsebo.structure.base import BatchedStructure
from gsebo.training.batches import BatchedGraph, Nodes

Array = NDArray[Any]

# Entries of a table that are read at once.
_PIECE = 2**20


class Batched(Protocol):
    """An estimator that can train on batches."""

    batch_size: int | None
    sampler: str | Sampler
    batches_per_step: int
    shard_strengths: bool
    weight_decay: float


def batched_graph(
    estimator: Batched,
    arrays: GraphArrays,
    backbone: Backbone,
    structure: BatchedStructure,
    run: Run,
) -> BatchedGraph:
    """Get ready to draw batches of a graph, as an estimator's parameters say."""
    assert estimator.batch_size is not None
    sampler = make_sampler(estimator.sampler).bind(
        arrays,
        num_layers=backbone.num_propagations,
        batch_size=estimator.batch_size,
        seed=run.seed,
    )
    return BatchedGraph(
        arrays=arrays,
        sampler=sampler,
        backbone=backbone,
        structure=structure,
        weight_decay=estimator.weight_decay,
        seed=run.seed,
        device=run.device,
        batches_per_step=estimator.batches_per_step,
        group=current_group(run.device.type),
    )


def check_batches(estimator: Batched, **only: tuple[object, object]) -> None:
    """Raise for what batches cannot do, and for what only they can.

    ``only`` has parameters with what is given and the only value that batches can do.
    """
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
