"""Do neighbours have similar features?"""

import torch
from torch import Tensor


def gram_matrix(features: Tensor) -> Tensor:
    """Products of all pairs of feature rows, ``X Xᵀ``, ``[nodes, nodes]``."""
    return features @ features.mT


def feature_smoothness(
    symmetric: Tensor, gram: Tensor, *, shift: float = 1e-3
) -> Tensor:
    """``tr(Xᵀ L X)`` with the normalised Laplacian of a weighted graph.

        tr(Xᵀ L X) = ½ Σ_ij S_ij ‖x_i / √d_i - x_j / √d_j‖²,   d = row sums of S

    Features only enter by their products, so that it costs n² instead of n² times the
    number of features.

    Args:
        symmetric: Weights ``S`` of all pairs of nodes, not negative, ``[n, n]``.
        gram: ``X Xᵀ``, ``[n, n]``.
        shift: Added to the degrees under the roots: without it the derivative at a node
            without edges would be infinite.
    """
    degree = symmetric.sum(-1)
    scale = (degree + shift).rsqrt()
    own = torch.dot(degree * scale.square(), gram.diagonal())
    shared = torch.dot(scale, (symmetric * gram) @ scale)
    return own - shared
