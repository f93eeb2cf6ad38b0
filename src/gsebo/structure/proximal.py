"""Steps towards sparse and low-rank matrices that are no gradient steps.

The proximal operator of a penalty ``f`` is ``prox(X) = argmin_Z ½ ‖Z - X‖² + f(Z)``.
"""

import torch
from torch import Tensor
from torch.nn.functional import softshrink


def shrink_entries(matrix: Tensor, amount: float) -> Tensor:
    """Proximal operator of ``amount · ‖X‖₁``: every entry that much nearer to 0."""
    return softshrink(matrix, amount)


def shrink_singular_values(symmetric: Tensor, amount: float) -> Tensor:
    """Proximal operator of ``amount · ‖X‖_*`` at a symmetric matrix ``[n, n]``.

    The singular values of a symmetric matrix are the sizes of its eigenvalues, and an
    eigendecomposition is several times faster than one into singular values.
    """
    if not bool(symmetric.isfinite().all()):
        # The decomposition would raise; whoever trains is told that it diverged.
        return symmetric
    values, vectors = torch.linalg.eigh(symmetric)
    shrunk: Tensor = (vectors * softshrink(values, amount)) @ vectors.mT
    return (shrunk + shrunk.mT) / 2
