"""GCN-SVD: a GCN on the adjacency matrix with only its largest singular values."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.files import Count
from gsebo.graph import CanonicalGraph, Graph, Propagation
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline
from gsebo.sparse import Noise
from gsebo.training import Member, Task

# n x n matrices in single precision that are alive at once when the entries that count
# are stored in the end, measured, and those that each run keeps.
_MATRICES, _MATRICES_PER_RUN = 34, 6


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GCNSVD(JointBaseline):
    """Training on a low-rank approximation of the graph (Entezari et al., WSDM 2020).

    Attacks mostly change the small singular values of the adjacency matrix A. Of

        A ≈ U_k S_k V_kᵀ

    the k largest are kept. The result is dense, with negative entries where they come
    out; self-loops are added and it is normalised like any weighted graph, after which
    nothing of it is learned. Where other singular values equal the k-th, which of them
    are kept is chance, but the same chance every time.

    Args:
        rank: How many singular values are kept (k). Comparisons have tried 5 to 200.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    rank: Count = 15

    def _problem(self, task: Task) -> "GCNSVDProblem":
        return GCNSVDProblem(task, self)

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        return _MATRICES + _MATRICES_PER_RUN * runs


def low_rank_adjacency(graph: CanonicalGraph, rank: int) -> Tensor:
    """The best approximation of a rank to A, rows = targets, double ``[nodes, nodes]``.

    >>> path = CanonicalGraph(2, torch.tensor([[1], [0]]), torch.tensor([0]))
    >>> low_rank_adjacency(path, 1).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    source, target = graph.edge_index.cpu().numpy()
    size = graph.num_nodes
    weight = (
        np.ones(len(source)) if graph.weight is None else graph.weight.cpu().numpy()
    )
    matrix = csr_array((weight, (target, source)), shape=(size, size))
    if rank >= size:
        return torch.from_numpy(matrix.toarray())
    # The partial decomposition is for few of many.
    if 2 * rank >= size:
        left, values, right = np.linalg.svd(matrix.toarray())
        left, values, right = left[:, :rank], values[:rank], right[:rank]
    else:
        # A vector of ones may lie in a space that holds only some of the others.
        start = np.random.default_rng(0).standard_normal(size)
        left, values, right = svds(matrix, k=rank, v0=start)
    # By torch, whose products are the same on any number of threads.
    scaled = torch.from_numpy(np.ascontiguousarray(left * values))
    return scaled @ torch.from_numpy(np.ascontiguousarray(right))


def normalise_signed(matrix: Tensor) -> Tensor:
    """D^-1/2 M D^-1/2 of a matrix whose entries may be negative, d = its row sums.

    A node whose sum is not above zero has no root: it gets and gives nothing.
    """
    degree = matrix.sum(-1)
    positive = degree > 0
    scale = degree.where(positive, 1).rsqrt().where(positive, 0)
    return matrix * scale.unsqueeze(-1) * scale


@final
class GCNSVDProblem(BaselineProblem[GCNSVD]):
    """Training loss on the approximated graph, on which predictions are made too."""

    dense = True

    def __init__(self, task: Task, method: GCNSVD) -> None:
        super().__init__(task, method)
        matrix = low_rank_adjacency(task.graph.graph, method.rank)
        matrix.diagonal().add_(1)
        strengths = normalise_signed(matrix).to(task.device, task.dtype)
        self._graph = Propagation(self.all_pairs, self.all_pairs.values(strengths))

    def initial_outer(self) -> Tree:
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.loss_on(self._graph, weights, Noise(self.task.seed, step))

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self._graph)]
