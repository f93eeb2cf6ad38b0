"""Epochs: every thing once, in an order that is as good as random."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsebo.errors import InvalidInput
from gsebo.loader.kernels import shuffled
from gsebo.loader.sampler import piece_of_epoch
from gsebo.sparse import Noise

from .evenness import chance_of
from .graphs import examples


@examples
@given(
    st.integers(1, 200), st.integers(1, 250), st.integers(0, 2**40), st.integers(0, 9)
)
def test_every_epoch_has_every_thing_once(length, size, seed, epoch) -> None:
    pieces = math.ceil(length / size)
    numbers = range(epoch * pieces, (epoch + 1) * pieces)
    found = [piece_of_epoch(length, size, number, seed) for number in numbers]
    assert sorted(np.concatenate(found).tolist()) == list(range(length))
    assert all(len(piece) == size for piece in found[:-1])
    assert all((np.diff(piece) > 0).all() for piece in found)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(shuffled(np.arange(50), 50, Noise(seed, epoch), 0).tolist())

    orders = {order(seed, epoch) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_all_orders_are_equally_likely(length: int) -> None:
    times = dict.fromkeys(permutations(range(length)), 0)
    places = np.arange(length)
    for epoch in range(50 * len(times)):
        times[tuple(shuffled(places, length, Noise(1, epoch), 0).tolist())] += 1
    assert chance_of(list(times.values())) > 1e-3


@pytest.mark.parametrize("place", [0, 49, 99])
def test_all_things_are_equally_likely_at_a_place(place: int) -> None:
    where = np.array([place])
    found = [shuffled(where, 100, Noise(2, epoch), 0)[0] for epoch in range(5000)]
    assert chance_of(np.bincount(found, minlength=100)) > 1e-3


def test_neighbors_part() -> None:
    """Where the thing next to another goes says nothing of where that one went."""
    apart = [
        np.diff(shuffled(np.array([3, 4]), 101, Noise(5, epoch), 0))[0] % 101
        for epoch in range(5000)
    ]
    assert chance_of(np.bincount(apart, minlength=101)[1:]) > 1e-3


def test_a_piece_of_a_long_order_needs_none_of_the_rest() -> None:
    longest = 2**32
    found = shuffled(np.arange(longest - 1000, longest), longest, Noise(0, 0), 0)
    assert len(set(found.tolist())) == 1000
    assert found.min() >= 0 and found.max() < longest
    assert abs(found.mean() / longest - 0.5) < 0.05
    with pytest.raises(InvalidInput, match="at most"):
        shuffled(np.arange(3), longest + 1, Noise(0, 0), 0)


def test_there_is_no_batch_before_the_first() -> None:
    with pytest.raises(InvalidInput, match="number -1"):
        piece_of_epoch(5, 2, -1, 0)
