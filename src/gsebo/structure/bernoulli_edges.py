"""Undirected graphs drawn edge by edge, one probability for each pair of nodes."""

from typing import final

import torch
from torch import Tensor

from gsebo.sparse import Noise, uniform
from gsebo.structure.pair_matrix import PairMatrix


@final
class BernoulliEdges:
    """Random graphs whose edges are there independently of each other.

    Probabilities are ``[pairs]``, one for each pair of nodes, in the order of
    :class:`PairMatrix`.

    Args:
        num_nodes: Number of nodes.
        device: Where probabilities live.
    """

    def __init__(self, num_nodes: int, device: torch.device | str) -> None:
        self._pairs = PairMatrix(num_nodes, device)

    def certain(self, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
        """Probability 1 for every pair that an edge ``[2, edges]`` joins, 0 else."""
        return self._pairs.joined(edge_index).to(dtype)

    def project(self, probabilities: Tensor) -> Tensor:
        """The nearest numbers in [0, 1]."""
        return probabilities.clamp(0, 1)

    def sample(self, probabilities: Tensor, noise: Noise, site: int) -> Tensor:
        """Draw a symmetric matrix of 0 and 1, self-loops all there, ``[nodes, nodes]``.

        Its derivative is straight-through, as if the draw were the probability itself:
        that of a pair is the sum of those of its two entries.

        Args:
            probabilities: One for each pair.
            noise: Seed and step of the draw.
            site: Number of the place that draws.
        """
        drawn = _drawn(probabilities, noise, site).to(probabilities.dtype)
        # The difference is exactly 0 and only carries the derivative.
        straight = drawn + (probabilities - probabilities.detach())
        return self._pairs.symmetric(straight, diagonal=1.0)

    def sample_edges(self, probabilities: Tensor, noise: Noise, site: int) -> Tensor:
        """Draw the same graph as its edges in both directions, ``[2, edges]``."""
        pair = _drawn(probabilities, noise, site).nonzero().squeeze(-1)
        # Before row i of the triangle there are i (i - 1) / 2 pairs.
        larger = ((1 + (8 * pair + 1).double().sqrt()) / 2).long()
        smaller = pair - larger * (larger - 1) // 2
        edges = torch.stack([larger, smaller])
        return torch.cat([edges, edges.flip(0)], dim=1)


@torch.no_grad()
def _drawn(probabilities: Tensor, noise: Noise, site: int) -> Tensor:
    drawn = probabilities >= 1
    # What is certain needs no draw: at first that is everything, and later most.
    undecided = ((probabilities > 0) & ~drawn).nonzero().squeeze(-1)
    chances = probabilities[undecided]
    drawn[undecided] = uniform(tuple(chances.shape), noise, site, chances) < chances
    return drawn
