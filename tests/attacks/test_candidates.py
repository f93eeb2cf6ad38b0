"""Pairs are numbered without gaps, and drawn evenly without being listed."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo import InvalidInput
from gsebo.attacks.budget import read_budget
from gsebo.attacks.candidates import CandidatePairs, row_of, row_start


@st.composite
def spaces(draw: st.DrawFn) -> CandidatePairs:
    size = draw(st.integers(2, 40))
    ends = draw(st.none() | st.sets(st.integers(0, size - 1), min_size=1))
    return CandidatePairs(size, None if ends is None else torch.tensor(sorted(ends)))


@given(spaces())
def test_every_pair_has_one_number(pairs: CandidatePairs) -> None:
    numbers = torch.arange(pairs.count)
    found = pairs.pairs(numbers)
    assert torch.equal(pairs.numbers(found), numbers)
    assert torch.equal(pairs.numbers(found.flip(1)), numbers)
    assert bool((found[:, 0] < found[:, 1]).all() and pairs.contains(found).all())
    assert len(torch.unique(found, dim=0)) == pairs.count
    every = torch.combinations(torch.arange(pairs.num_nodes))
    assert int(pairs.contains(every).sum()) == pairs.count


@given(st.integers(2, 2**31 - 1), st.integers(0, 2**62))
def test_numbers_of_large_graphs_are_exact(size: int, number: int) -> None:
    number %= size * (size - 1) // 2
    first = row_of(torch.tensor([number]), size)
    assert 0 <= int(first) < size - 1
    assert int(row_start(first, size)) <= number < int(row_start(first + 1, size))


@given(spaces(), st.integers(0, 1000), st.integers(0, 50))
def test_what_is_drawn_is_new(pairs: CandidatePairs, wanted: int, taken: int) -> None:
    generator = np.random.default_rng(wanted)
    without = pairs.draw(taken, generator)
    found = pairs.draw(wanted, generator, without=without)
    assert len(set(found.tolist())) == len(found)
    assert len(found) == min(wanted, pairs.count - len(without))
    assert not set(found.tolist()) & set(without.tolist())
    assert bool((found >= 0).all() and (found < pairs.count).all())


def test_all_free_pairs_are_drawn_as_often() -> None:
    pairs, generator = CandidatePairs(5), np.random.default_rng(0)
    without = torch.tensor([7, 2])
    drawn = [pairs.draw(3, generator, without=without) for _ in range(4000)]
    counts = torch.bincount(torch.cat(drawn), minlength=10)
    assert counts[without].tolist() == [0, 0]
    others = np.delete(counts.numpy(), [2, 7])
    assert abs(others - 1500).max() < 150


def test_pairs_of_a_large_graph_take_the_memory_of_what_is_drawn() -> None:
    tracemalloc.start()
    pairs = CandidatePairs(200_000)
    found = pairs.pairs(pairs.draw(1000, np.random.default_rng(0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (1000, 2) and pairs.count == 19_999_900_000
    assert peak < 10e6


@pytest.mark.parametrize(
    ("given", "total", "found"),
    [("5%", 5278, 264), ("12.5 %", 4, 1), (7, 3, 7), (" 7", 3, 7), ("200%", 3, 6)],
)
def test_budgets(given: int | str, total: int, found: int) -> None:
    assert read_budget(given, total) == found


@pytest.mark.parametrize(
    "given", ["", "%", "-1", "5x", "nan%", "1e99%", 0.05, True, None]
)
def test_no_budgets(given: object) -> None:
    with pytest.raises(InvalidInput, match="given; expected a number of pairs"):
        read_budget(given, 10)  # type: ignore[arg-type]
