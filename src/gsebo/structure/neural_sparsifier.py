"""NeuralSparse: each node keeps a few neighbours, chosen by a learned score.

Of the neighbours j of node i, with features x and Gumbel noise g,

    z_ij = v · ReLU(U_target x_i + U_source x_j + b),
    p_ij = softmax_j((z_ij + g_ij) / temperature),
    w_ij = p_ij if it is among the k largest of node i, else 0.

All of it lives on the edges of the graph; no matrix of all pairs is made.
"""

import math
from typing import final

import torch
from torch import Tensor, nn

from gsebo.sparse import (
    Noise,
    Pattern,
    SparseFeatures,
    edge_softmax,
    row_expand,
    uniform,
)
from gsebo.sparse.row_top import row_top

_DECAY = 1e-3
_REFRESHED_EVERY = 50
_COLDEST = 0.05


@final
class NeighbourScorer(nn.Module):
    """The scores z of all edges, from the features at their two ends.

    The last layer has no bias: it would shift all neighbours of a node alike, which a
    softmax does not see. The same holds for the weight of the edges in a graph whose
    edges all weigh the same.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the hidden layer.
    """

    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()
        # The columns of both ends in one matrix, so that one product serves both.
        self.ends = nn.Parameter(torch.empty(in_channels, 2 * hidden_channels))
        self.bias = nn.Parameter(torch.zeros(hidden_channels, 1))
        self.output = nn.Parameter(torch.empty(1, hidden_channels))
        # To the network both ends are one input of 2 * in_channels numbers.
        bound = math.sqrt(6 / (2 * in_channels + hidden_channels))
        nn.init.uniform_(self.ends, -bound, bound)
        nn.init.xavier_uniform_(self.output)

    def forward(self, features: Tensor | SparseFeatures, pattern: Pattern) -> Tensor:
        """Return the score of every entry, ``[entries]``.

        Args:
            features: Of the nodes.
            pattern: Edges without self-loops, rows = targets.
        """
        target, source = (features @ self.ends).T.chunk(2)
        hidden = row_expand(pattern, target + self.bias) + row_expand(pattern.T, source)
        return (self.output @ torch.relu(hidden)).squeeze(0)


def sparsified(
    pattern: Pattern,
    scores: Tensor,
    temperature: Tensor | float,
    num_neighbours: int,
    gumbel: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose the neighbours of every node, and weigh them.

    Args:
        pattern: Edges without self-loops, rows = targets.
        scores: z, ``[entries]``.
        temperature: Of the softmax.
        num_neighbours: k.
        gumbel: g, ``[entries]``; none if ``None``.

    Returns:
        Which entries are chosen, bool ``[entries]``, at most k of each row; and the
        weights w of those, ``[chosen entries]``.
    """
    noisy = scores if gumbel is None else scores + gumbel
    share = edge_softmax(pattern, noisy / temperature)
    chosen = row_top(pattern, share, num_neighbours)
    return chosen, share[chosen]


def gumbel_noise(size: int, noise: Noise, site: int, like: Tensor) -> Tensor:
    """Draw ``[size]`` numbers of the standard Gumbel distribution."""
    # In double precision: single cuts off the upper tail, where the choice is made.
    exact = torch.empty((), dtype=torch.float64, device=like.device)
    return -torch.log(-torch.log(uniform((size,), noise, site, exact))).to(like.dtype)


def temperature_at(step: int) -> float:
    """Temperature of a training step: it falls every 50 steps, down to 0.05.

    >>> [round(temperature_at(step), 3) for step in (0, 49, 50, 99, 5000)]
    [1.0, 1.0, 0.951, 0.951, 0.05]
    """
    refreshed = step - step % _REFRESHED_EVERY
    return max(_COLDEST, math.exp(-_DECAY * refreshed))
