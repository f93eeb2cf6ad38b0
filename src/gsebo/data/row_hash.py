"""A number for the content of each row of features, however they are stored."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.features import features_to_csr, take_rows

Words = NDArray[np.uint64]

# Rows are hashed in blocks, so that the numbers in between stay in the cache.
_ENTRIES_AT_ONCE = 2**18


def row_hashes(x: Tensor) -> Tensor:
    """Hash each row of a dense or ``sparse_csr`` matrix, int64 ``[rows]``.

    Equal rows have equal hashes, dense or sparse, on every machine; numbers count as
    float32, and zeros do not count.

    >>> first, second = row_hashes(torch.tensor([[0.0, 2.0], [2.0, 0.0]])).tolist()
    >>> first == second
    False
    """
    x = x.detach().cpu()
    hashes = np.empty(x.shape[0], dtype=np.uint64)
    for begin, end in _blocks(x):
        rows = take_rows(x, torch.arange(begin, end))
        matrix = features_to_csr(rows.to(torch.float32))
        entries = _mixed(
            (matrix.indices.astype(np.uint64) << np.uint64(32))
            | matrix.data.view(np.uint32)
        )
        # A sum of the hashes of a row's entries: differences of running sums that wrap
        # around are exact, and no order of the entries matters.
        running = np.zeros(len(entries) + 1, dtype=np.uint64)
        np.cumsum(entries, out=running[1:])
        hashes[begin:end] = _mixed(np.diff(running[matrix.indptr]))
    return torch.from_numpy(hashes.view(np.int64))


def _blocks(x: Tensor) -> Iterator[tuple[int, int]]:
    stored = x.numel() if x.layout == torch.strided else x.values().numel()
    step = max(_ENTRIES_AT_ONCE * x.shape[0] // max(stored, 1), 1)
    for begin in range(0, x.shape[0], step):
        yield begin, min(begin + step, x.shape[0])


def _mixed(words: Words) -> Words:
    """Scatter words over all 64 bits, one to one (the finaliser of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
