"""Which edges a training step keeps: an exact share of them, chosen at random."""

import math
from typing import final

import torch
from torch import Tensor

from gsebo.sparse import Noise, uniform
from gsebo.structure.topology import Topology


@final
class EdgeDrop:
    """Keeps ``int((1 - rate) * n)`` of the n pairs of a graph, and all self-loops.

    A pair is an edge together with its opposite, if there is one: both stay or both go,
    so that an undirected graph stays undirected.

    Args:
        graph: The entries.
        rate: Share to drop, in [0, 1).
        directed: Choose among single edges instead of pairs.

    Attributes:
        num_pairs: Number of pairs, or of edges if ``directed``.
        num_kept: How many of them are kept.
    """

    def __init__(self, graph: Topology, rate: float, *, directed: bool) -> None:
        edges = torch.arange(graph.num_edges, device=graph.pattern.device)
        self._pair_of_edge = edges if directed else _pair_of_edge(graph)
        self._num_loops = graph.num_loops
        self.num_pairs = int(self._pair_of_edge.max()) + 1 if graph.num_edges else 0
        # 1 - 0.9 is a little below 0.1 in binary, but a tenth of ten pairs is one.
        self.num_kept = math.floor((1 - rate) * self.num_pairs + 1e-9)

    def kept_entries(self, noise: Noise, site: int) -> Tensor:
        """Draw the entries to keep, bool ``[entries]``; each pair is equally likely.

        Args:
            noise: Seed and step.
            site: Number of the place, so that no two draw the same.
        """
        pair_of_edge = self._pair_of_edge
        # Double precision draws more bits, so that there are hardly any ties.
        like = torch.empty((), dtype=torch.float64, device=pair_of_edge.device)
        drawn = uniform((self.num_pairs,), noise, site, like)
        # A stable order settles a tie in the same way on every device.
        first = drawn.argsort(stable=True)[: self.num_kept]
        kept = torch.zeros_like(drawn, dtype=torch.bool)
        kept[first] = True
        loops = kept.new_ones(self._num_loops)
        return torch.cat([kept.index_select(0, pair_of_edge), loops])


def _pair_of_edge(graph: Topology) -> Tensor:
    """Number the pairs by their first edge, ``[edges]``."""
    reverse = graph.reverse_edge
    edge = torch.arange(graph.num_edges, device=reverse.device)
    is_first = (reverse < 0) | (edge <= reverse)
    number = is_first.cumsum(0) - 1
    return torch.where(is_first, number, number[reverse])
