from collections.abc import Iterator
from contextlib import nullcontext

import numba
import pytest
import torch

from gsebo.sparse import numba_compile, reference_kernels


@pytest.fixture(params=["numba", "reference"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test once on each set of kernels."""
    with reference_kernels() if request.param == "reference" else nullcontext():
        yield request.param


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """Lets a test change the number of threads, of torch and of numba."""
    torch_threads, numba_threads = torch.get_num_threads(), numba.get_num_threads()
    yield
    torch.set_num_threads(torch_threads)
    numba.set_num_threads(numba_threads)


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch, restored_threads: None) -> None:
    """Takes the parallel kernels even for little work."""
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", -1)
    torch.set_num_threads(2)
