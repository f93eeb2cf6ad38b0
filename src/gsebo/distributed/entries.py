"""Numbers that belong to some entries of a large table: ids and values.

Gradients of per-edge strengths come like this, each for the edges of one batch. They
are added up over batches and processes in a fixed order, so that everybody has the same
bits, and so does any number of processes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.distributed.group import Group

Columns = Mapping[str, tuple[int, ...]]
"""The axes before the entries, of each named column."""
_Send = Callable[[Sequence[Tensor]], list[Tensor]]


@final
class Entries(NamedTuple):
    """Values of some entries.

    Attributes:
        ids: Which entries, int64 ``[k]``, ascending, each once.
        values: Named values, ``[..., k]``.
    """

    ids: Tensor
    values: Tree

    @classmethod
    def nothing(
        cls, columns: Columns, dtype: torch.dtype, device: torch.device
    ) -> "Entries":
        """Return no entries at all."""
        ids = torch.empty(0, dtype=torch.int64, device=device)
        empty = {
            name: torch.empty(*axes, 0, dtype=dtype, device=device)
            for name, axes in columns.items()
        }
        return cls(ids, empty)

    def cut(self, place: slice) -> "Entries":
        """Return those at some of the places."""
        values = {name: leaf[..., place] for name, leaf in self.values.items()}
        return Entries(self.ids[place], values)


def add_up(parts: Sequence[Entries]) -> Entries:
    """Return all entries of all parts, the values of each added in the parts' order.

    Args:
        parts: At least one, all with the same names.
    """
    full = [part for part in parts if part.ids.numel()]
    if len(full) < 2:
        return full[0] if full else parts[0]
    ids, places = torch.unique(
        torch.cat([part.ids for part in full]), return_inverse=True
    )
    lengths = [part.ids.numel() for part in full]
    place_of = list(zip(full, torch.split(places, lengths), strict=True))
    values = {}
    for name, leaf in full[0].values.items():
        total = leaf.new_zeros(*leaf.shape[:-1], ids.numel())
        # One call for each part, in which no entry occurs twice: the order is fixed.
        for part, place in place_of:
            total.index_add_(-1, place, part.values[name])
        values[name] = total
    return Entries(ids, values)


def combine(
    group: Group, parts: Sequence[Entries], owners: Sequence[range] | None = None
) -> Entries:
    """Add up the parts of all processes, by rank and then in the order of the parts.

    Args:
        group: Who takes part.
        parts: Those of this process: at least one, which may be empty.
        owners: Entries that each rank is to get the sums of; ``None``: all get all.
    """
    if group.size == 1:
        return add_up(parts)
    boxes, send = [list(parts)], _to_all(group)
    if owners is not None:
        cuts = [places_by_owner(part.ids, owners) for part in parts]
        by_part = list(zip(parts, cuts, strict=True))
        ranks = range(group.size)
        boxes = [[part.cut(cut[rank]) for part, cut in by_part] for rank in ranks]
        send = group.exchange
    lengths = send([_lengths(box) for box in boxes])
    ids = send([torch.cat([part.ids for part in box]) for box in boxes])
    rows = send([torch.cat([pack(part.values) for part in box]) for box in boxes])
    columns = {name: leaf.shape[:-1] for name, leaf in parts[0].values.items()}
    received = []
    for count, own_ids, own_rows in zip(lengths, ids, rows, strict=True):
        pieces = (
            torch.split(own_ids, count.tolist()),
            torch.split(own_rows, count.tolist()),
        )
        received += [
            Entries(each, unpack(packed, columns))
            for each, packed in zip(*pieces, strict=True)
        ]
    return add_up(received)


def places_by_owner(ids: Tensor, owners: Sequence[range]) -> list[slice]:
    """Where among ascending ids those of each owner lie.

    Args:
        ids: int64 ``[k]``, ascending, each once.
        owners: Entries of each rank, one range after another.
    """
    total = owners[-1].stop
    if ids.numel():
        first, last = int(ids[0]), int(ids[-1])
        if first < 0 or last >= total or bool((ids[1:] <= ids[:-1]).any()):
            raise ValueError(
                f"ids from {first} to {last} given; expected ascending ones from 0 to "
                f"{total - 1}, each once"
            )
    ends = torch.tensor([own.stop for own in owners], device=ids.device)
    stops: list[int] = torch.searchsorted(ids, ends).tolist()
    return [slice(*pair) for pair in pairwise([0, *stops])]


def pack(values: Tree) -> Tensor:
    """Lay all numbers of an entry side by side: ``[k, numbers]``, ready to be sent."""
    rows = [_matrix(leaf) for leaf in values.values()]
    return torch.cat(rows).T.contiguous()


def unpack(packed: Tensor, columns: Columns) -> Tree:
    """Undo :func:`pack`."""
    widths = [prod(axes) for axes in columns.values()]
    pieces = torch.split(packed.T.contiguous(), widths)
    return {
        name: piece.view(*axes, packed.shape[0])
        for (name, axes), piece in zip(columns.items(), pieces, strict=True)
    }


def _matrix(leaf: Tensor) -> Tensor:
    return leaf.reshape(prod(leaf.shape[:-1]), leaf.shape[-1])


def _to_all(group: Group) -> _Send:
    def send(items: Sequence[Tensor]) -> list[Tensor]:
        (item,) = items
        return group.gather(item)

    return send


def _lengths(box: Sequence[Entries]) -> Tensor:
    device = box[0].ids.device
    return torch.tensor([part.ids.numel() for part in box], device=device)
