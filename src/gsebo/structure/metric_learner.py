"""A graph from the features of its nodes: similarity by learned weights of channels.

    s_ij = mean over heads p of cos(w_p ⊙ x_i, w_p ⊙ x_j),   0 where not above epsilon

(Chen, Wu and Zaki, NeurIPS 2020.) What is asked of such a graph: that similar nodes are
joined, that no node is left alone, and that the numbers are small.
"""

import torch
from torch import Tensor

_TINY = 1e-12


def weighted_cosine(x: Tensor, heads: Tensor) -> Tensor:
    """Mean of the cosines under each head, ``[nodes, nodes]``.

    A row of zeros is similar to nothing, itself included.

    Args:
        x: One row for each node, ``[nodes, channels]``.
        heads: w, ``[heads, channels]``.
    """
    seen = x.unsqueeze(1) * heads
    squares = seen.square().sum(-1, keepdim=True) * len(heads)
    unit = seen * torch.where(squares > 0, squares, 1).rsqrt()
    flat = unit.flatten(1)
    return flat @ flat.mT


def above(similarity: Tensor, epsilon: float) -> Tensor:
    """The same with 0 for all that does not exceed ``epsilon``."""
    return torch.where(similarity > epsilon, similarity, 0)


def row_normalised(weights: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays as it is."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


def dirichlet_energy(weights: Tensor, gram: Tensor) -> Tensor:
    """``tr(Xᵀ L X) = ½ Σ_ij s_ij ‖x_i - x_j‖²``, L = D - S with D the row sums.

    Args:
        weights: S, symmetric, ``[nodes, nodes]``.
        gram: ``X Xᵀ``, so that a step costs nothing per channel, ``[nodes, nodes]``.
    """
    return torch.dot(weights.sum(-1), gram.diagonal()) - (weights * gram).sum()


def disconnection(weights: Tensor) -> Tensor:
    """Mean over the nodes of -log of their degree: large where one is left alone."""
    return -(weights.sum(-1) + _TINY).log().mean()


def relative_change(new: Tensor, old: Tensor, first: Tensor) -> float:
    """``‖new - old‖² / ‖first‖²``."""
    with torch.no_grad():
        size = first.square().sum().clamp(min=_TINY)
        return float((new - old).square().sum() / size)
