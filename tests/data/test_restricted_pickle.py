import collections
import contextlib
import os
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from gsebo.data.datasets.raw import read_pickle
from gsebo.errors import InvalidInput


def test_arrays_and_adjacency_lists_are_read() -> None:
    array = np.arange(6.0).reshape(2, 3)
    lists = collections.defaultdict(list, {0: [1], 1: [0]})
    for protocol in range(2, pickle.HIGHEST_PROTOCOL):
        again = read_pickle(pickle.dumps(array, protocol=protocol))
        assert np.array_equal(again, array)
        matrix = read_pickle(pickle.dumps(csr_matrix(array), protocol=protocol))
        assert np.array_equal(matrix.toarray(), array)
        assert read_pickle(pickle.dumps(lists, protocol=protocol)) == lists


class _Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    "thing",
    [_Runs(), print, eval, {1, 2}.__class__, np.random.default_rng, os.path.join],
)
def test_anything_else_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidInput, match="expected only arrays"):
        read_pickle(pickle.dumps(thing))


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Python objects"):
        read_pickle(pickle.dumps(np.array([{}, []], dtype=object), protocol=2))


@given(st.binary(max_size=60))
def test_garbage_raises_nothing_but_invalid_input(payload: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        read_pickle(payload)
