"""Which nodes and edges are known: the same as by looking at every pair."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.errors import InvalidInput
from gsebo.graph import canonicalise
from gsebo.graph.features import csr_tensor, take_rows
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import NodeKeys, find_entries, row_hashes

SIZES = st.integers(1, 9)
# A few values only, so that some keys of two graphs agree and others do not.
KEYS = st.lists(st.integers(-5, 12), min_size=1, max_size=9, unique=True)
ROWS = st.lists(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5]), min_size=3, max_size=3),
    min_size=1,
    max_size=8,
)


def csr(x: Tensor) -> Tensor:
    row, column = x.nonzero(as_tuple=True)
    starts = torch.searchsorted(row, torch.arange(x.shape[0] + 1))
    return csr_tensor(starts, column, x[row, column], (x.shape[0], x.shape[1]))


@given(fitted=KEYS, given_ids=KEYS)
def test_ids_find_their_nodes(fitted: list[int], given_ids: list[int]) -> None:
    ours = NodeKeys(len(fitted), node_id=torch.tensor(fitted))
    theirs = NodeKeys(len(given_ids), node_id=torch.tensor(given_ids))
    expected = [fitted.index(i) if i in fitted else -1 for i in given_ids]
    assert ours.find(theirs).tolist() == expected


NAMES = st.lists(
    st.sampled_from(["a", "b", "é", "1", "2", "-3", "07", "x y"]),
    min_size=1,
    unique=True,
)


@given(fitted=KEYS | NAMES, others=KEYS | NAMES)
def test_texts_find_their_nodes(
    fitted: list[int] | list[str], others: list[int] | list[str]
) -> None:
    def keys(ids: list[int] | list[str]) -> NodeKeys:
        texts = isinstance(ids[0], str)
        return NodeKeys(len(ids), node_id=np.array(ids) if texts else torch.tensor(ids))

    # A number is the text that it is written as.
    texts = [str(one) for one in fitted]
    expected = [texts.index(str(i)) if str(i) in texts else -1 for i in others]
    assert keys(fitted).find(keys(others)).tolist() == expected
    same = texts == [str(one) for one in others]
    data = Graph(edge_index=torch.zeros(2, 0), node_id=keys(others).node_id)
    assert keys(fitted).may_be(data) is same


@given(fitted=st.lists(SIZES, min_size=1), others=st.lists(SIZES, min_size=1))
def test_without_ids_position_and_content_decide(
    fitted: list[int], others: list[int]
) -> None:
    ours = NodeKeys(len(fitted), torch.tensor(fitted))
    theirs = NodeKeys(len(others), torch.tensor(others), torch.arange(len(others)))
    expected = [
        place if place < len(fitted) and fitted[place] == content else -1
        for place, content in enumerate(others)
    ]
    assert ours.find(theirs).tolist() == expected
    nameless = NodeKeys(len(fitted))
    expected = [p if p < len(fitted) else -1 for p in range(len(others))]
    assert nameless.find(theirs).tolist() == expected


@given(old=SIZES, new=SIZES, loops=st.booleans(), choice=st.data())
def test_entries_are_found(old: int, new: int, loops: bool, choice: st.DataObject):
    def graph(size: int):
        pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
        pairs = choice.draw(st.lists(pair, max_size=12))
        edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
        return canonicalise(Data(edge_index=edges, num_nodes=size))

    fitted, given_graph = graph(old), graph(new)
    places = choice.draw(st.permutations([*range(old), *[-1] * new]))
    node = torch.tensor(places[:new])
    entry = find_entries(
        fitted.edge_index, old, given_graph, node, self_loops=loops
    ).tolist()
    known = [tuple(edge) for edge in fitted.edge_index.T.tolist()]
    pairs = [tuple(node[edge].tolist()) for edge in given_graph.edge_index.T]
    expected = [known.index(pair) if pair in known else -1 for pair in pairs]
    if loops:
        expected += [len(known) + n if n >= 0 else -1 for n in node.tolist()]
    assert entry == expected


@given(rows=ROWS)
def test_equal_rows_have_equal_hashes_and_others_do_not(rows: list) -> None:
    x = torch.tensor(rows)
    hashes = row_hashes(x)
    same = (x[:, None] == x[None]).all(-1)
    assert torch.equal(hashes[:, None] == hashes[None], same)
    assert torch.equal(row_hashes(csr(x)), hashes)
    assert torch.equal(row_hashes(x.double()), hashes)


@settings(max_examples=20)
@given(seed=st.integers(0, 100), entries=st.sampled_from([1, 7, 50, 2**18]))
def test_hashes_do_not_depend_on_blocks(seed: int, entries: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(30, 5, generator=generator)
    x[torch.rand(30, 5, generator=generator) < 0.6] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gsebo.graph.node_match._ENTRIES_AT_ONCE", entries)
        hashes, sparse = row_hashes(x), row_hashes(csr(x))
    assert torch.equal(hashes, sparse)
    assert torch.equal(hashes, torch.cat([row_hashes(row[None]) for row in x]))


def mixed(word: int) -> int:
    """SplitMix64's finaliser, in whole numbers without an end."""
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@given(rows=ROWS)
def test_hashes_are_the_same_on_every_machine(rows: list) -> None:
    # Stored models rely on it.
    expected = []
    for row in rows:
        parts = [
            mixed((column << 32) | int.from_bytes(struct.pack(">f", value)))
            for column, value in enumerate(row)
            if value
        ]
        word = mixed(sum(parts) % 2**64)
        expected.append(word - 2**64 if word >= 2**63 else word)
    assert row_hashes(torch.tensor(rows)).tolist() == expected


def test_huge_numbers_have_a_hash_too() -> None:
    x = torch.tensor([[1e300, 1.0], [-1e300, 1.0]], dtype=torch.float64)
    assert row_hashes(x).unique().numel() == 2


@given(seed=st.integers(0, 100), rows=st.lists(st.integers(0, 5), max_size=8))
def test_rows_of_sparse_features(seed: int, rows: list[int]) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)).relu()
    chosen = torch.tensor(rows, dtype=torch.int64)
    assert torch.equal(take_rows(x, chosen), x[chosen])
    assert torch.equal(take_rows(csr(x), chosen).to_dense(), x[chosen])


def test_keys_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match="each of 3 nodes"):
        NodeKeys(3, torch.arange(2))
    with pytest.raises(InvalidInput, match="node_id"):
        NodeKeys(3, None, torch.arange(4))
