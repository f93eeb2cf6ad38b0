"""A learned graph, looked up at the edges of the given one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph import Propagation, Topology
from gsebo.sparse import CompletePattern, Pattern

SIZE = 5


def dense(propagation: Propagation) -> torch.Tensor:
    """Rows = targets, columns = sources, with an axis of layers in front if any."""
    pattern, strengths = propagation
    matrix = strengths.new_zeros(*strengths.shape[:-1], SIZE, SIZE)
    matrix[..., pattern.row_of_entry, pattern.column_of_entry] = strengths
    return matrix


def random_edges(seed: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SIZE, (2, count), generator=generator)


def random_strengths(seed: int, layers: int, entries: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (layers, entries) if layers else (entries,)
    return torch.rand(shape, generator=generator)


@pytest.mark.parametrize("loops", [True, False])
@given(seed=st.integers(0, 99), count=st.integers(0, 12), layers=st.integers(0, 2))
def test_lookup_is_indexing_of_the_dense_matrix(
    loops: bool, seed: int, count: int, layers: int
) -> None:
    learned = Topology.from_edges(
        random_edges(seed, count), SIZE, self_loops=loops, device="cpu"
    )
    strengths = random_strengths(seed, layers, learned.num_entries)
    propagation = Propagation(learned.pattern, strengths)
    asked = Topology.from_edges(
        random_edges(seed + 1, 7), SIZE, self_loops=False, device="cpu"
    )
    on_edges, on_loops = propagation.at(asked.graph)
    matrix = dense(propagation)
    source, target = asked.graph.edge_index
    assert torch.equal(on_edges, matrix[..., target, source])
    assert torch.equal(on_loops, matrix.diagonal(dim1=-2, dim2=-1))


@given(seed=st.integers(0, 99), layers=st.integers(0, 2))
def test_a_complete_pattern_is_stored_without_what_does_not_count(
    seed: int, layers: int
) -> None:
    strengths = random_strengths(seed, layers, SIZE * SIZE)
    strengths = torch.where(strengths < 0.6, 1e-9, strengths)
    whole = Propagation(CompletePattern(SIZE, "cpu"), strengths)
    stored = whole.stored(1e-6, self_loops=True)
    torch.testing.assert_close(dense(stored), dense(whole), rtol=0, atol=1e-8)
    assert stored.pattern.num_entries <= SIZE * SIZE
    if layers < 2:
        few = int((strengths > 1e-6).sum())
        assert stored.pattern.num_entries <= few + SIZE


def test_a_sparse_pattern_keeps_entries_that_count_nothing() -> None:
    pattern = Pattern.from_positions(
        torch.tensor([0, 0, 1]), torch.tensor([1, 0, 1]), SIZE
    )
    before = Propagation(pattern, torch.tensor([0.0, 1.0, 0.5]))
    after = before.stored(1e-6, self_loops=False)
    assert after.pattern.num_entries == 1
    assert torch.equal(after.strengths, torch.tensor([0.0]))
    with_loops = before.stored(1e-6, self_loops=True)
    assert torch.equal(dense(with_loops), dense(before))
