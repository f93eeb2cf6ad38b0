"""A graph convolutional network without activation, and what one flip does to a node.

Logits are Z = S S H with S = D^-1/2 (A + I) D^-1/2 and H = X W. So the logits of one
node v after a change of one pair (v, u) have a closed form, in which d are degrees with
the self-loop, N(v) the neighbors of v, and t_a the sum of h_b / sqrt(d_b) over a and
its neighbors b:

    z_v = d_v^-1/2 (sum over a in N(v) of t_a / d_a + t_v / d_v).

A flip changes d_v and d_u by one, and with them the terms of v and u in every t_a; how
often u counts is a sum over the common neighbors of v and u. That is O(nodes * classes)
for all u together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array, eye_array
from torch import Tensor
from torch.nn.functional import cross_entropy

from gsebo.graph.features import features_to_csr

Numbers = NDArray[np.float64]
Matrix = Any
"""A sparse matrix of scipy."""

_STEPS = 100
_WEIGHT_DECAY = 5e-4


@final
@dataclass(frozen=True, eq=False)
class LinearGCN:
    """The trained network: scores of each node before they are propagated.

    Attributes:
        scores: H = X W, ``[nodes, classes]``.
    """

    scores: Numbers

    @classmethod
    def fit(
        cls, x: Tensor, pairs: Tensor, labels: Tensor, known: Tensor, classes: int
    ) -> LinearGCN:
        """Train it on nodes whose labels are known, by logistic regression on S S X.

        Args:
            x: Features, dense or sparse, ``[nodes, channels]``.
            pairs: Pairs that are joined, ``[pairs, 2]``.
            labels: Class of each node, ``[nodes]``.
            known: Which of them are learned from, bool ``[nodes]``.
            classes: Number of classes.
        """
        features = features_to_csr(x.detach().cpu().double())
        matrix = _propagation(pairs, len(labels))
        # Two hops of the labelled nodes alone: all of S S X might not fit into memory.
        rows = matrix[known.numpy()] @ matrix @ features
        seen, wanted = torch.from_numpy(rows.toarray()), labels[known]
        # Weights are kept small; how small is not to depend on the scale of features.
        scale = seen.norm(dim=1).mean().clamp(min=torch.finfo(seen.dtype).tiny)
        seen = seen / scale
        weight = torch.zeros(seen.shape[1], classes, dtype=seen.dtype)
        weight.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [weight], max_iter=_STEPS, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(seen @ weight, wanted)
            loss = loss + _WEIGHT_DECAY / 2 * weight.square().sum()
            torch.autograd.backward(loss)
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return cls(np.asarray(features @ (weight.detach() / scale).numpy()))

    def logits(self, pairs: Tensor) -> Numbers:
        """Logits of every node where these pairs are joined, ``[nodes, classes]``."""
        matrix = _propagation(pairs, len(self.scores))
        found: Numbers = matrix @ (matrix @ self.scores)
        return found

    def after_flips(self, adjacency: Matrix, node: int) -> Numbers:
        """Logits of a node after its pair with each other node is changed.

        Args:
            adjacency: Entries of one where nodes are joined, ``csr``, symmetric.
            node: Which.

        Returns:
            ``[nodes, classes]``: row u is what the node has when (node, u) is flipped,
            and its own row what it has as things are.
        """
        h, v = self.scores, node
        degree = np.diff(adjacency.indptr) + 1.0
        near = adjacency.indices[adjacency.indptr[v] : adjacency.indptr[v + 1]]
        joined = np.zeros(len(h), np.bool_)
        joined[near] = True
        scaled = h / np.sqrt(degree)[:, None]
        sums = adjacency @ scaled + scaled
        # What each flip makes of both degrees; the node with itself stays.
        change = np.where(joined, -1.0, 1.0)
        change[v] = 0
        own, other = degree[v] + change, degree + change
        of_own = (own**-0.5 - degree[v] ** -0.5)[:, None] * h[v]
        of_other = (other**-0.5 - degree**-0.5)[:, None] * h
        share = np.zeros(len(h))
        share[near] = 1 / degree[near]
        common = (adjacency @ share)[:, None]
        common[v] = 0
        # Neighbors that stay neighbors; without u itself where it is parted.
        neighbors = share[near] @ sums[near]
        left = np.where(joined, share, 0.0)
        around = neighbors - left[:, None] * sums
        around += (share.sum() - left)[:, None] * of_own + common * of_other
        loop = sums[v] + of_own
        loop += np.where(joined, -(degree**-0.5), other**-0.5)[:, None] * h
        there = (sums + of_other + own[:, None] ** -0.5 * h[v]) / other[:, None]
        new = around + loop / own[:, None] + np.where(joined, 0.0, 1.0)[:, None] * there
        new[v] = neighbors + sums[v] / degree[v]
        found: Numbers = new / np.sqrt(own)[:, None]
        return found


def adjacency_of(pairs: Tensor, num_nodes: int) -> Matrix:
    """Ones where pairs are joined, in both directions, as ``csr``."""
    ends = torch.cat([pairs, pairs.flip(1)]).T.numpy()
    ones = np.ones(ends.shape[1])
    return csr_matrix((ones, (ends[0], ends[1])), shape=(num_nodes, num_nodes))


def _propagation(pairs: Tensor, num_nodes: int) -> Matrix:
    loops = adjacency_of(pairs, num_nodes) + eye_array(num_nodes)
    scale = diags_array(np.asarray(loops.sum(1)).ravel() ** -0.5)
    return (scale @ loops @ scale).tocsr()
