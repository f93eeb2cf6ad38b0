"""False edges of the relations that a graph has, in proportion to their edges."""

from __future__ import annotations

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.noise.kinds import edge_values, share_of
from gsebo.data.relations import opposite_relations, relation_in_words
from gsebo.data.seeding import seeded_generator, sorted_distinct
from gsebo.data.validate import sized
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph, as_graph
from gsebo.graph.node_match import at_or_median
from gsebo.memory import require_memory
from gsebo.sparse.types import EntryTypes

Ints = NDArray[np.int64]

# Of pairs that are drawn or listed, their keys and what sorts them.
_BYTES_PER_PAIR = 48


def add_false_typed_edges(data: Graph, percent: int, seed: int = 0) -> Graph:
    """Return a copy of a graph with more edges of each relation.

    Of each relation, so many percent of its edges are added: pairs drawn uniformly,
    without replacement, from all pairs of its types that it does not join yet, and of
    two different nodes. Where another relation holds the same edges the other way, as
    papers have authors who have papers, it gets the new ones the other way too; an
    edge of a relation that is its own opposite counts once and is added both ways.
    Nodes and edges without types are of one. New edges follow the user's, relation by
    relation. Where those have weights or attributes, new ones have the median of their
    relation's. No label is read.
    """
    types = as_graph(data).types or _one_type(data)
    edges = data.edge_index.detach().cpu().to(torch.int64)
    opposite = opposite_relations(edges, types)
    generator = seeded_generator(seed)
    added: dict[int, Ints] = {}
    for number in range(types.num_relations):
        if number in added:
            continue
        mirrored = opposite[number]
        new = _drawn(edges, types, number, mirrored == number, percent, generator)
        added[number] = new
        if mirrored == number:
            added[number] = np.concatenate([new, new[::-1]], axis=1)
        elif mirrored is not None:
            added[mirrored] = new[::-1]
    return _with_edges(data, types, dict(sorted(added.items())))


def _one_type(data: Graph) -> EntryTypes:
    """A graph without types as one of one type and one relation."""
    nodes = torch.zeros(int(sized(data).num_nodes), dtype=torch.int64)
    edges = torch.zeros(data.num_edges, dtype=torch.int64)
    return EntryTypes(nodes, edges, ("node",), (("node", "to", "node"),))


def _drawn(
    edges: Tensor,
    types: EntryTypes,
    number: int,
    both_ways: bool,
    percent: int,
    generator: np.random.Generator,
) -> Ints:
    """New pairs of a relation, ``[2, pairs]``, of one way where it has both."""
    source_type, _, target_type = types.edge_types[number]
    place, kind = types.place_in_type.numpy(), types.node_type.numpy()
    ends = [
        np.flatnonzero(kind == types.node_types.index(name))
        for name in (source_type, target_type)
    ]
    size = (len(ends[0]), len(ends[1]))
    total, same = size[0] * size[1], source_type == target_type
    held = place[edges[:, types.edge_type == number].numpy()]

    def keys_of(pairs: Ints) -> Ints:
        """One number for each pair, or for both ways of one; loops are left out."""
        if same:
            pairs = pairs[:, pairs[0] != pairs[1]]
        if both_ways:
            pairs = np.sort(pairs, axis=0)
        keys: Ints = pairs[0] * size[1] + pairs[1]
        return keys

    taken = sorted_distinct(keys_of(held))
    count = share_of(percent, len(taken))
    loops = size[0] if same else 0
    free = (total - loops) // (2 if both_ways else 1) - len(taken)
    if count > free:
        raise InvalidInput(
            f"{count} false edges of the relation "
            f"{relation_in_words(types.edge_types[number])} to add: expected at most "
            f"{free}, the pairs that are free."
        )
    if count == 0:
        return np.empty((2, 0), np.int64)
    # Where most that are drawn would not be free, those that are free are listed.
    are_few = total <= 4 * (count + len(taken) + loops)
    require_memory(
        _BYTES_PER_PAIR * (total if are_few else 4 * count),
        what=f"drawing {count} edges",
        instead="fewer of them",
    )

    def candidates(codes: Ints) -> Ints:
        keys = keys_of(np.stack(np.divmod(codes, size[1])))
        return keys[~np.isin(keys, taken)]

    if are_few:
        every = sorted_distinct(candidates(np.arange(total)))
        chosen = generator.choice(every, count, replace=False)
    else:
        chosen = np.empty(0, np.int64)
        while len(chosen) < count:
            codes = generator.integers(total, size=2 * count + 16)
            chosen = np.concatenate([chosen, candidates(codes)])
            _, first = np.unique(chosen, return_index=True)
            chosen = chosen[np.sort(first)]
        chosen = chosen[:count]
    source, target = np.divmod(chosen, size[1])
    return np.stack([ends[0][source], ends[1][target]])


def _with_edges(data: Graph, types: EntryTypes, added: dict[int, Ints]) -> Graph:
    """A copy of a graph with edges behind its own, given by their relations."""
    noisy = copy(data)
    new = torch.from_numpy(np.concatenate(list(added.values()), axis=1))
    noisy.edge_index = torch.cat([data.edge_index, new.to(data.edge_index)], dim=1)
    sizes = [pairs.shape[1] for pairs in added.values()]
    if "edge_type" in data:
        relations = torch.tensor(list(added)).repeat_interleave(torch.tensor(sizes))
        noisy.edge_type = torch.cat([data.edge_type, relations.to(data.edge_type)])
    for key, held in edge_values(data, "add edges").items():
        parts = [held]
        for number, size in zip(added, sizes, strict=True):
            of_relation = held[(types.edge_type == number).to(held.device)]
            place = torch.full((size,), -1, device=held.device)
            parts.append(at_or_median(of_relation, place))
        noisy[key] = torch.cat(parts)
    return noisy
