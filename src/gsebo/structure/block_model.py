"""Blocks of densely linked nodes: an assortative mixed-membership block model.

Node a belongs to block k to the share π_ak. Two nodes that meet in block k link with
probability β_k, and with a small probability δ if they meet in none:

    L_ab = δ + Σ_k (β_k - δ) π_ak π_bk

The parameters are φ and θ, with π = φ / Σφ and β = θ_1 / (θ_0 + θ_1), and they climb
the likelihood of links and sampled non-links. A sum over pairs only needs the pairs'
L_ab and products with π, so that nothing of the size pairs x blocks is ever held.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsebo.sparse import Pattern, row_sum, sddmm, spmm

# A pair that the model holds for impossible must not divide by zero.
_LEAST_PROBABILITY = 1e-10
# A parameter moves in proportion to itself: from zero it would never come back.
_LEAST_PARAMETER = 1e-30


class Blocks(NamedTuple):
    """Parameters of the model.

    Attributes:
        phi: Unnormalised membership of each node, ``[nodes, blocks]``.
        theta: Weight against and for a link inside each block, ``[blocks, 2]``.
    """

    phi: Tensor
    theta: Tensor

    @property
    def membership(self) -> Tensor:
        """π, ``[nodes, blocks]``."""
        return self.phi / self.phi.sum(-1, keepdim=True)

    @property
    def density(self) -> Tensor:
        """β: probability of a link inside each block, ``[blocks]``."""
        return self.theta[:, 1] / self.theta.sum(-1)

    @classmethod
    def at_random(cls, num_nodes: int, num_blocks: int, seed: int) -> Blocks:
        """Draw φ from Gamma(1 / blocks) and θ from Gamma(1), on the CPU."""
        generator = np.random.default_rng(seed)
        phi = generator.gamma(1 / num_blocks, size=(num_nodes, num_blocks))
        theta = generator.gamma(1.0, size=(num_blocks, 2))
        return cls(*(torch.from_numpy(x).clamp(_LEAST_PARAMETER) for x in (phi, theta)))

    def restarted(self, probability: Tensor, links: Pattern, delta: float) -> Blocks:
        """Begin anew from class probabilities; only the sizes of φ and θ are kept.

        Each density is the share of linked pairs among those of one predicted class.

        Args:
            probability: Of the classes of each node, ``[nodes, blocks]``.
            links: Positions of the links, both ways.
            delta: The least density; a block without any link would never get one.
        """
        label = probability.argmax(-1)
        row, column = label[links.rows.long()], label[links.columns.long()]
        num_blocks = probability.shape[-1]
        inside = torch.where(row == column, row, num_blocks)
        num_links = inside.bincount(minlength=num_blocks + 1)[:num_blocks]
        size = label.bincount(minlength=num_blocks).to(probability.dtype)
        density = (num_links / (size**2 + 1)).clamp(min=delta)
        theta = torch.stack([1 - density, density], dim=-1)
        return Blocks(
            probability * self.phi.sum(-1, keepdim=True),
            theta * self.theta.sum(-1, keepdim=True),
        )


def climbed(parameter: Tensor, climb: Tensor, step: float) -> Tensor:
    """One step uphill, pulled a little towards zero: |x + step (x g - x / 1000)|.

    Args:
        parameter: x, all of it positive.
        climb: x g, the parameter times its gradient.
        step: Half the step size.
    """
    moved = parameter + step * (climb - 0.001 * parameter)
    return moved.abs().clamp(min=_LEAST_PARAMETER)


class Meetings(NamedTuple):
    """Sums over the partners b of each node a, Q_ab the probability of what is seen.

    Attributes:
        number: Σ c_ab, ``[nodes]``.
        total: Σ c_ab / Q_ab, ``[nodes]``.
        mixed: Σ c_ab / Q_ab π_bk, ``[nodes, blocks]``.
    """

    number: Tensor
    total: Tensor
    mixed: Tensor


def at_links(blocks: Blocks, delta: float, links: Pattern) -> Meetings:
    """Sum over the links of every node; there Q = L, and each link counts once."""
    membership = blocks.membership
    left = membership * (blocks.density - delta)
    probability = delta + sddmm(links, left, membership)
    inverse = 1 / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(
        links.row_counts.to(inverse.dtype),
        row_sum(links, inverse),
        spmm(links, inverse, membership),
    )


def at_nonlinks(
    blocks: Blocks, delta: float, rows: Tensor, columns: Tensor, weight: Tensor
) -> Meetings:
    """Sum over non-links between some nodes and others; there Q = 1 - L.

    Args:
        blocks: The parameters.
        delta: δ.
        rows: Nodes a, ``[rows]``.
        columns: Nodes b, ``[columns]``.
        weight: c_ab, zero for pairs that are none, ``[rows, columns]``.
    """
    membership = blocks.membership
    left = membership.index_select(0, rows) * (blocks.density - delta)
    right = membership.index_select(0, columns)
    probability = 1 - delta - left @ right.mT
    scaled = weight / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(weight.sum(-1), scaled.sum(-1), scaled @ right)


def phi_climb(
    blocks: Blocks, delta: float, rows: Tensor, links: Meetings, nonlinks: Meetings
) -> Tensor:
    """φ times the gradient of the log-likelihood by φ, ``[rows, blocks]``.

    φ_ak g_ak = Σ_b c_ab (f_ab(k) / Q_ab - π_ak), where
    f_ab(k) = π_ak (B(y; β_k) π_bk + B(y; δ) (1 - π_bk)).

    Args:
        blocks: The parameters.
        delta: δ.
        rows: The nodes.
        links: Sums over their links.
        nonlinks: Sums over their non-links.
    """
    gain = blocks.density - delta
    seen = delta * links.total.unsqueeze(-1) + gain * links.mixed
    unseen = (1 - delta) * nonlinks.total.unsqueeze(-1) - gain * nonlinks.mixed
    number = (links.number + nonlinks.number).unsqueeze(-1)
    return blocks.membership.index_select(0, rows) * (seen + unseen - number)


def theta_climb(blocks: Blocks, links: Tensor, nonlinks: Tensor) -> Tensor:
    """θ times the gradient of the log-likelihood by θ, ``[blocks, 2]``.

    θ_ki g_ki = Σ_ab c_ab B(y; β_k) π_ak π_bk / Q_ab (1[y = i] - θ_ki / Σ_i θ_ki),
    over pairs without order.

    Args:
        blocks: The parameters.
        links: Σ c_ab π_ak π_bk / Q_ab over the links, ``[blocks]``.
        nonlinks: The same over the non-links.
    """
    density = blocks.density
    share = torch.stack([1 - density, density], dim=-1)
    owned = share * torch.stack([nonlinks, links], dim=-1)
    return owned - share * owned.sum(-1, keepdim=True)


def links_inside(blocks: Blocks, links: Meetings) -> Tensor:
    """Σ c_ab π_ak π_bk / Q_ab over the links, each once, ``[blocks]``."""
    return (blocks.membership * links.mixed).sum(0) / 2


def nonlinks_inside(
    blocks: Blocks, delta: float, pairs: Tensor, weight: Tensor
) -> Tensor:
    """Σ c_ab π_ak π_bk / Q_ab over non-links, ``[blocks]``.

    Args:
        blocks: The parameters.
        delta: δ.
        pairs: Nodes a and b, ``[2, pairs]``.
        weight: c_ab, zero for pairs that are none, ``[pairs]``.
    """
    membership = blocks.membership
    both = membership.index_select(0, pairs[0]) * membership.index_select(0, pairs[1])
    probability = 1 - delta - both @ (blocks.density - delta)
    return (weight / probability.clamp(min=_LEAST_PROBABILITY)) @ both
