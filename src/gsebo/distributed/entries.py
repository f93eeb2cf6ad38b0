"""Numbers that belong to some entries of a large table: ids and values.

Gradients of per-edge strengths come like this, each for the edges of one batch. They
are added up over batches and processes in a fixed order, so that everybody has the same
bits, and so does any number of processes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree
from gsebo.distributed.group import Group

Columns = Mapping[str, tuple[int, ...]]
"""The axes before the entries, of each named column: ``()`` or ``(layers,)``."""


@final
class Entries(NamedTuple):
    """Named values ``[..., k]`` of some entries; ids ascend, each once, ``[k]``."""

    ids: Tensor
    values: Tree

    def cut(self, place: slice) -> "Entries":
        """Return those at some of the places."""
        values = {name: leaf[..., place] for name, leaf in self.values.items()}
        return Entries(self.ids[place], values)


def add_up(parts: Sequence[Entries]) -> Entries:
    """Return all entries of all parts, the values of each added in the parts' order.

    There is at least one part, and all have the same names.
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

    This process gives at least one, which may be empty. Each rank gets the sums of the
    entries that it owns; without owners all get all.
    """
    if group.size == 1:
        return add_up(parts)
    sent = [list(parts)]
    if owners is not None:
        cuts = [places_by_owner(part.ids, owners) for part in parts]
        pairs = list(zip(parts, cuts, strict=True))
        sent = [[part.cut(cut[k]) for part, cut in pairs] for k in range(group.size)]

    def send(items: list[Tensor]) -> list[Tensor]:
        return group.gather(items[0]) if owners is None else group.exchange(items)

    device = parts[0].ids.device
    counts = [[part.ids.numel() for part in each] for each in sent]
    lengths = send([torch.tensor(each, device=device) for each in counts])
    ids = send([torch.cat([part.ids for part in each]) for each in sent])
    rows = send([torch.cat([pack(part.values) for part in each]) for each in sent])
    columns = {name: leaf.shape[:-1] for name, leaf in parts[0].values.items()}
    received = []
    for length, own_ids, own_rows in zip(lengths, ids, rows, strict=True):
        cut = [torch.split(whole, length.tolist()) for whole in (own_ids, own_rows)]
        received += [
            Entries(some, unpack(packed, columns))
            for some, packed in zip(*cut, strict=True)
        ]
    return add_up(received)


def places_by_owner(ids: Tensor, owners: Sequence[range]) -> list[slice]:
    """Where among ascending ids those of each owner lie; owners ascend too."""
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
    """Join all numbers of an entry: ``[k, numbers]``, ready to be sent."""
    rows = [
        leaf.reshape(prod(leaf.shape[:-1]), leaf.shape[-1]) for leaf in values.values()
    ]
    return torch.cat(rows).T.contiguous()


def unpack(packed: Tensor, columns: Columns) -> Tree:
    """Undo :func:`pack`."""
    widths = [prod(axes) for axes in columns.values()]
    pieces = torch.split(packed.T.contiguous(), widths)
    return {
        name: piece.view(*axes, packed.shape[0])
        for (name, axes), piece in zip(columns.items(), pieces, strict=True)
    }
