"""How well products of embeddings tell linked pairs from all others, block by block.

With x_ij = z_i · z_j and targets t_ij in {0, 1} over all ordered pairs of n nodes,

    Σ_ij [ p t_ij softplus(-x_ij) + (1 - t_ij) softplus(x_ij) ]
      = Σ_ij softplus(x_ij) + Σ over t_ij = 1 of [ p softplus(-x_ij) - softplus(x_ij) ]

so only the first sum runs over n² numbers. Its derivative is known: it is computed on
the way, and no n x n matrix is ever held.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from gsebo.sparse import Pattern, sddmm
from gsebo.structure.pair_ranking import row_blocks

_BLOCK = 1 << 20
"""Products that are held together."""


def reconstruction_loss(
    embedding: Tensor, links: Pattern, *, both_ways: bool = True, block: int = _BLOCK
) -> Tensor:
    """Weighted cross-entropy of sigmoid(z_i · z_j) to A + I (Kipf and Welling, 2016).

        n² / (2 (n² - S)) · mean BCE(Z Zᵀ, A + I), an edge counting (n² - S) / S times

    with S the sum of A, which is taken to be symmetric.

    Args:
        embedding: Z, ``[nodes, channels]``.
        links: Pairs of A, at least one, from the smaller node to the larger one.
        both_ways: Whether each pair is an edge both ways in the target; if not, only
            as it is in ``links``.
        block: How many products are held at once.
    """
    num_nodes = embedding.shape[0]
    edges = 2 * links.num_entries
    others = num_nodes**2 - edges
    on_pairs = sddmm(links, embedding, embedding)
    on_loops = embedding.square().sum(-1)
    found = _surplus(on_pairs, others / edges) * (2 if both_ways else 1)
    found = found + _surplus(on_loops, others / edges)
    everywhere: Tensor = _SoftplusOfProducts.apply(  # type: ignore[no-untyped-call]
        embedding, block
    )
    return (everywhere + found) / (2 * others)


def _surplus(products: Tensor, weight: float) -> Tensor:
    """Σ weight · softplus(-x) - softplus(x): what targets of one change in the sum."""
    return logsigmoid(-products).sum() - weight * logsigmoid(products).sum()


class _SoftplusOfProducts(torch.autograd.Function):
    """Z ↦ Σ_ij softplus(z_i · z_j), whose derivative by z_i is 2 Σ_j sigmoid(x_ij) z_j.

    The products are symmetric: a block of rows starts at its diagonal and counts twice
    behind it.
    """

    @staticmethod
    def forward(ctx: Any, embedding: Tensor, block: int) -> Tensor:
        derivative = torch.zeros_like(embedding)
        # In double precision, because it is the sum of n² numbers.
        total = torch.zeros((), dtype=torch.float64, device=embedding.device)
        for start, stop in row_blocks(embedding.shape[0], block):
            rows, behind = embedding[start:stop], embedding[start:]
            products = rows @ behind.mT
            softplus = logsigmoid(-products).neg_()
            own = softplus[:, : stop - start].sum(dtype=torch.float64)
            total += 2 * softplus.sum(dtype=torch.float64) - own
            likely = products.sigmoid_()
            derivative[start:stop] += likely @ behind
            derivative[stop:] += likely[:, stop - start :].mT @ rows
        ctx.save_for_backward(derivative.mul_(2))
        return total.to(embedding.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return cotangent * derivative, None
