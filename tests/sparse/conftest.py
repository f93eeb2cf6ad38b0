from collections.abc import Iterator
from contextlib import nullcontext

import numba
import pytest

from gsebo.sparse import reference_kernels


@pytest.fixture(params=["numba", "reference"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test once on each set of kernels."""
    with reference_kernels() if request.param == "reference" else nullcontext():
        yield request.param


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """Lets a test change the number of threads."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)
