"""A member's graph over another graph: the same as by looking at every pair."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.graph import Propagation, Topology
from gsebo.graph.node_match import find_entries
from gsebo.model.known import KnownEntries, extended_member
from gsebo.training import Member

Pairs = set[tuple[int, int]]


def topology(pairs: Pairs, size: int, loops: bool) -> Topology:
    edges = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2).T
    return Topology.from_edges(edges, size, self_loops=loops, device="cpu")


def by_pair(pattern, strengths: Tensor) -> dict[tuple[int, int], object]:
    ends = torch.stack([pattern.column_of_entry, pattern.row_of_entry]).T.tolist()
    columns = strengths.movedim(-1, 0).tolist()
    return {tuple(pair): column for pair, column in zip(ends, columns, strict=True)}


@given(
    old=st.integers(1, 5),
    new=st.integers(1, 5),
    loops=st.booleans(),
    layers=st.sampled_from([(), (2,)]),
    choice=st.data(),
)
def test_every_pair(
    old: int, new: int, loops: bool, layers: tuple[int, ...], choice: st.DataObject
) -> None:
    def pairs(size: int) -> Pairs:
        pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
        return choice.draw(st.sets(pair.filter(lambda p: p[0] != p[1]), max_size=12))

    fit_pairs, own_pairs, new_pairs = pairs(old), pairs(old), pairs(new)
    places = choice.draw(st.permutations([*range(old), *[-1] * new]))
    node = torch.tensor(places[:new])
    fitted, given_graph = (
        topology(fit_pairs, old, loops),
        topology(new_pairs, new, loops),
    )
    own = topology(own_pairs, old, loops)
    entry = find_entries(
        fitted.graph.edge_index, old, given_graph.graph, node, self_loops=loops
    )
    known = KnownEntries(entry, node, given_graph.num_edges)
    strengths = torch.rand(*layers, own.num_entries) + 1
    fresh = torch.rand(*layers, given_graph.num_entries) + 3
    weights = {"w": torch.ones(1)}
    member = extended_member(
        Member(Propagation(own.pattern, strengths), weights),
        fitted.graph,
        known,
        given_graph,
        fresh,
    )
    assert member.weights is weights
    found = by_pair(*member.propagation)
    mine, theirs = by_pair(own.pattern, strengths), by_pair(given_graph.pattern, fresh)
    expected = {}
    for pair in ((s, t) for s in range(new) for t in range(new)):
        before = places[pair[0]], places[pair[1]]
        is_known = min(before) >= 0
        loop = pair[0] == pair[1]
        taken_away = before in fit_pairs and pair not in new_pairs
        if is_known and before in mine and not taken_away:
            expected[pair] = mine[before]
        elif pair in theirs and not (is_known and (loop or before in fit_pairs)):
            expected[pair] = theirs[pair]
    assert found == expected
