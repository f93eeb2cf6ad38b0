"""Memory is estimated before it is taken, and large work is cut into pieces."""

import pytest
import torch
from tests.sparse.test_reach import random_pattern

from gsebo import GSEBO, InvalidInput, generate_graph, memory
from gsebo.sparse import reference
from gsebo.sparse.reference import REFERENCE_KERNELS


def test_a_fit_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = generate_graph(50, split="random:20/30/50")
    model = GSEBO(device="cpu", max_outer_steps=1, random_state=0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.raises(InvalidInput, match=r"takes about .* GB more on cpu, where 0.0"):
        model.fit(data)
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    model.fit(data)


def test_this_machine_has_some_memory() -> None:
    free = memory.free_memory(torch.device("cpu"))
    assert free is None or free > 2**20


@pytest.mark.parametrize("bound", [1, 7, 2**26])
def test_pieces_make_the_whole(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = random_pattern(9, 40, 0)
    values, x = torch.rand(2, 40), torch.rand(2, 9, 3)
    size, threshold, keys = 50, 2**31, (5, 9)
    arguments = [
        (REFERENCE_KERNELS.spmm, (pattern, values, x)),
        (REFERENCE_KERNELS.sddmm, (pattern, x, x)),
        (REFERENCE_KERNELS.keep_mask, (size, threshold, keys, x)),
    ]
    whole = [kernel(*given) for kernel, given in arguments]
    monkeypatch.setattr(reference, "_CHUNK_NUMBERS", bound)
    for (kernel, given), truth in zip(arguments, whole, strict=True):
        torch.testing.assert_close(kernel(*given), truth, rtol=1e-6, atol=1e-6)
