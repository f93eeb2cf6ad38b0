"""Fitting a block model to a graph with batches of nodes and sampled non-links."""

from __future__ import annotations

from functools import cached_property
from typing import final

import torch
from torch import Tensor

from gsebo.sparse import Noise, uniform
from gsebo.structure.block_model import (
    Blocks,
    Meetings,
    at_links,
    at_nonlinks,
    climbed,
    links_inside,
    nonlinks_inside,
    phi_climb,
    theta_climb,
)
from gsebo.structure.topology import Topology

# Far from the places of networks and of sampled graphs.
_FIRST_SITE = 1_000_000
_SITES_PER_ITERATION = 4
# Pairs for one gradient by θ at most: a share of all grows with the square of nodes.
_MOST_PAIRS = 1 << 20
_STEP_DELAY = 1024


@final
class BlockFit:
    """Finds blocks in a graph; the direction of its edges does not count.

    In each iteration some nodes meet all their links and those of their non-links that
    lie among as many random nodes, which are the same for all, so that a batch is one
    product of matrices. A graph that is no larger than a batch is taken as a whole.

    Args:
        graph: The observed edges.
        delta: Probability of a link between blocks.
        batch_nodes: Nodes in a batch.
        nonlink_share: Share of all non-links that a gradient by θ samples.
        device: Where to compute.
    """

    def __init__(
        self,
        graph: Topology,
        *,
        delta: float,
        batch_nodes: int = 500,
        nonlink_share: float = 0.01,
        device: torch.device | str = "cpu",
    ) -> None:
        edges = graph.graph.edge_index
        both_ways = torch.cat([edges, edges.flip(0)], dim=1)
        size = graph.num_nodes
        self.links = Topology.from_edges(
            both_ways, size, self_loops=False, device=device
        ).pattern
        self.delta = delta
        self._size = size
        self._batch = min(batch_nodes, size)
        self._num_nonlinks = (size * (size - 1) - self.links.num_entries) // 2
        wanted = min(round(nonlink_share * self._num_nonlinks), _MOST_PAIRS)
        self._num_pairs = max(wanted, 1)
        rows, columns = self.links.rows.long(), self.links.columns.long()
        # In order, because they are stored by rows; the last one ends every search.
        last = rows.new_full((1,), size * size)
        self._link_keys = torch.cat([rows * size + columns, last])

    def restart(self, blocks: Blocks, probability: Tensor) -> Blocks:
        """Begin anew from class probabilities, with the sizes of φ and θ in blocks."""
        return blocks.restarted(probability, self.links, self.delta)

    @torch.no_grad()
    def climb(
        self,
        blocks: Blocks,
        *,
        iterations: int,
        noise: Noise,
        first: int = 0,
        scale: float = 1.0,
    ) -> Blocks:
        """Improve the parameters.

        Args:
            blocks: Where to begin.
            iterations: Number of steps of φ (of one batch) and then of θ.
            noise: Seed and step; two fits with the same one draw the same.
            first: Number of the first iteration t; a step size is 1 / √(1024 + t) ...
            scale: ... divided by this.
        """
        for number in range(first, first + iterations):
            step = (_STEP_DELAY + number) ** -0.5 / scale / 2
            site = _FIRST_SITE + _SITES_PER_ITERATION * number
            blocks = self._moved_phi(blocks, step, noise, site)
            blocks = self._moved_theta(blocks, step, noise, site + 2)
        return blocks

    def _moved_phi(
        self, blocks: Blocks, step: float, noise: Noise, site: int
    ) -> Blocks:
        rows, columns, weight = self.batch(noise, site, blocks.theta)
        links = at_links(blocks, self.delta, self.links)
        links = Meetings(*(sums.index_select(0, rows) for sums in links))
        nonlinks = at_nonlinks(blocks, self.delta, rows, columns, weight)
        climb = phi_climb(blocks, self.delta, rows, links, nonlinks)
        moved = climbed(blocks.phi.index_select(0, rows), climb, step)
        return blocks._replace(phi=blocks.phi.index_copy(0, rows, moved))

    def _moved_theta(
        self, blocks: Blocks, step: float, noise: Noise, site: int
    ) -> Blocks:
        pairs, weight = self.pairs(noise, site, blocks.theta)
        climb = theta_climb(
            blocks,
            links_inside(blocks, at_links(blocks, self.delta, self.links)),
            nonlinks_inside(blocks, self.delta, pairs, weight),
        )
        return blocks._replace(theta=climbed(blocks.theta, climb, step))

    def batch(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, ...]:
        """Draw non-links for a gradient by φ.

        Args:
            noise: Seed and step.
            site: Number of the first of two places.
            like: Gives device and type.

        Returns:
            Nodes that move ``[rows]``, nodes that they meet ``[columns]``, and how many
            non-links of its row each pair stands for ``[rows, columns]``: 0 for links
            and loops.
        """
        rows = self._some_nodes(noise, site, like)
        columns = self._some_nodes(noise, site + 1, like)
        free = self._free(rows, columns, like)
        nonlinks = self._size - 1 - self.links.row_counts.index_select(0, rows)
        each = nonlinks / free.sum(-1).clamp(min=1)
        return rows, columns, free * each.unsqueeze(-1)

    def pairs(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Draw non-links for a gradient by θ.

        Args:
            noise: Seed and step.
            site: Number of the place.
            like: Gives device and type.

        Returns:
            Pairs ``[2, pairs]`` and how many non-links each stands for ``[pairs]``: 0
            for links.
        """
        if self._batch == self._size:
            pairs = self._all_nonlinks
            return pairs, like.new_ones(pairs.shape[1])
        drawn = uniform((2, self._num_pairs), noise, site, like.double())
        # One from each of as many equal parts of all nodes: in order, which makes the
        # search for links several times as fast, and less noisy than without.
        parts = torch.arange(self._num_pairs, device=like.device)
        first = ((parts + drawn[0]) * (self._size / self._num_pairs)).long()
        first = first.clamp(max=self._size - 1)
        # From 1 to size - 1 further on, round the corner: never the node itself.
        second = (first + 1 + (drawn[1] * (self._size - 1)).long()) % self._size
        free = (~self._are_linked(first, second)).to(like.dtype)
        each = self._num_nonlinks / free.sum().clamp(min=1)
        return torch.stack([first, second]), free * each

    def _some_nodes(self, noise: Noise, site: int, like: Tensor) -> Tensor:
        """Draw the nodes of a batch, all different."""
        if self._batch == self._size:
            return torch.arange(self._size, device=like.device)
        # Double precision draws more bits, so that there are hardly any ties.
        drawn = uniform((self._size,), noise, site, like.double())
        return drawn.topk(self._batch).indices

    def _free(self, rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
        """1 where two nodes may be a non-link, 0 for links and loops."""
        height, width = len(rows), len(columns)
        # Links from or to other nodes end in a last row or column, which is cut off.
        row_place = rows.new_full((self._size,), height)
        row_place[rows] = torch.arange(height, device=rows.device)
        column_place = rows.new_full((self._size,), width)
        column_place[columns] = torch.arange(width, device=rows.device)
        free = like.new_ones(height + 1, width + 1)
        free[row_place[self.links.rows], column_place[self.links.columns]] = 0
        return free[:-1, :-1] * (rows.unsqueeze(-1) != columns)

    @cached_property
    def _all_nonlinks(self) -> Tensor:
        size, device = self._size, self.links.device
        pairs = torch.triu_indices(size, size, offset=1, device=device)
        return pairs[:, ~self._are_linked(*pairs)]

    def _are_linked(self, first: Tensor, second: Tensor) -> Tensor:
        wanted = first * self._size + second
        place = torch.searchsorted(self._link_keys, wanted)
        return self._link_keys[place] == wanted
