"""How alike two rows of a sparse matrix are, for many pairs of rows."""

import torch
from torch import Tensor

from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.kernels.numba_overlap import row_overlap as overlap_kernel


@torch.no_grad()
def row_overlap(matrix: SparseFeatures, first: Tensor, second: Tensor) -> Tensor:
    """Inner products of pairs of rows, ``[pairs]``.

    The work grows with the stored entries of the shorter row of each pair. Of a row
    with more than 256, that many are looked at and the sum is scaled up. It runs on the
    CPU, wherever the matrix lies: it is needed once for a graph.

    Args:
        matrix: The rows; none holds a column twice.
        first: Numbers of rows, int64 ``[pairs]``.
        second: The others of each pair.

    >>> from gsebo.sparse import make_features
    >>> rows = make_features(torch.eye(5), torch.float32, "cpu")
    >>> row_overlap(rows, torch.tensor([0, 0]), torch.tensor([0, 1]))
    tensor([1., 0.])
    """
    out = torch.empty(first.numel(), dtype=matrix.dtype)
    overlap_kernel(
        matrix.pattern.to("cpu").arrays,
        matrix.values.detach().cpu().numpy(),
        first.cpu().numpy(),
        second.cpu().numpy(),
        out.numpy(),
    )
    return out.to(matrix.device)
