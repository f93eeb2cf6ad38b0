"""Pro-GNN: a sparse, low-rank and smooth graph near the given one."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softshrink

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count
from gsebo.graph import Graph
from gsebo.methods.baselines.pairs import dense_features, gram_matrix
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline, both_ways
from gsebo.methods.parameters import Rate, Steps
from gsebo.sparse import Noise
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy

_ADJACENCY = "adjacency"
# n x n matrices alive at once: those of an epoch, measured, and of each run.
_MATRICES, _MATRICES_PER_RUN = 22, 6


@final
@dataclass(kw_only=True, eq=False, repr=False)
class ProGNN(JointBaseline):
    """Property graph neural network (Jin et al., KDD 2020).

    The adjacency matrix S is learned together with the network. An epoch is one step of
    gradient descent with momentum on

        ‖S - A‖_F + gamma cross-entropy + lambda tr(Xᵀ L X),

    the proximal steps of beta ‖S‖_* (nuclear norm) and alpha ‖S‖₁, and two steps of the
    weights on their usual loss. S stays symmetric and in [0, 1]. A directed graph is
    read as an undirected one.

    Args:
        sparsity: The paper's alpha: the larger, the fewer edges.
        low_rank: Its beta: the larger, the lower the rank.
        supervision: Its gamma: how much S follows the training labels.
        smoothness: Its lambda: how much S joins nodes with similar features.
        structure_lr: Learning rate of S.
        nuclear_every: Epochs between two eigendecompositions. The authors have 1; a
            rarer one shrinks the singular values by as much as it stands for.
    """

    uses_edge_weight: ClassVar[bool] = False
    weight_steps: ClassVar[int | None] = 2
    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    inner_lr: Rate = 5e-4
    max_epochs: Steps = 1000
    patience: Count = 1000
    select_by: SelectBy = "accuracy"
    sparsity: Rate = 5e-4
    low_rank: Rate = 1.5
    supervision: Rate = 1.0
    smoothness: Rate = 1e-3
    structure_lr: Rate = 0.01
    nuclear_every: Steps = 1

    def _problem(self, task: Task) -> "ProGNNProblem":
        return ProGNNProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer("momentum", self.structure_lr)

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        return _MATRICES + _MATRICES_PER_RUN * runs


def shrink_singular_values(symmetric: Tensor, amount: float) -> Tensor:
    """Proximal operator, argmin_Z ½ ‖Z - X‖² + amount · ‖Z‖_*, at a symmetric matrix.

    The singular values of a symmetric matrix are the sizes of its eigenvalues, and an
    eigendecomposition is several times faster than one into singular values.
    """
    if not bool(symmetric.isfinite().all()):
        # The decomposition would raise; whoever trains is told that it diverged.
        return symmetric
    values, vectors = torch.linalg.eigh(symmetric)
    shrunk: Tensor = (vectors * softshrink(values, amount)) @ vectors.mT
    return (shrunk + shrunk.mT) / 2


def feature_smoothness(
    symmetric: Tensor, gram: Tensor, *, shift: float = 1e-3
) -> Tensor:
    """``tr(Xᵀ L X)`` with the normalised Laplacian of a weighted graph.

        tr(Xᵀ L X) = ½ Σ_ij S_ij ‖x_i / √d_i - x_j / √d_j‖²,   d = row sums of S

    Features only enter by their products ``gram``, so that it costs n² instead of n²
    times the number of features. The shift is added to the degrees under the roots:
    without it the derivative at a node without edges would be infinite.
    """
    degree = symmetric.sum(-1)
    scale = (degree + shift).rsqrt()
    own = torch.dot(degree * scale.square(), gram.diagonal())
    shared = torch.dot(scale, (symmetric * gram) @ scale)
    return own - shared


@final
class ProGNNProblem(BaselineProblem[ProGNN]):
    """The loss of a turn, and the proximal steps after a turn of the structure."""

    dense = True

    def __init__(self, task: Task, method: ProGNN) -> None:
        super().__init__(task, method)
        self._gram = gram_matrix(dense_features(task.features))
        self._loops = torch.eye(task.num_nodes, dtype=task.dtype, device=task.device)
        # 1 where an edge is, in whichever direction.
        self._undirected = torch.zeros_like(self._loops)
        edges = both_ways(task.graph.graph.edge_index.to(task.device))
        self._undirected[edges[0], edges[1]] = 1

    def initial_outer(self) -> Tree:
        return {_ADJACENCY: self._undirected.clone()}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """What the turn minimises: where S is a constant, it is that of the weights."""
        matrix = outer[_ADJACENCY]
        # Half of the gradient goes to either triangle, so that S stays symmetric.
        adjacency = (matrix + matrix.mT) / 2
        graph = self.weighted_pairs(adjacency + self._loops)
        noise = Noise(self.task.seed, step)
        if not matrix.requires_grad:
            return self.loss_on(graph, weights, noise)
        fit = self.task.loss_of(self.task.logits(weights, *graph, noise))
        distance: Tensor = torch.linalg.matrix_norm(adjacency - self._undirected)
        smoothness = self.method.smoothness * feature_smoothness(adjacency, self._gram)
        return distance + self.method.supervision * fit + smoothness

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Fewer and weaker edges, a lower rank, and entries in [0, 1]."""
        method, matrix = self.method, outer[_ADJACENCY]
        turn = step // (method.weight_steps or 1) + 1
        low_rank = method.low_rank * method.structure_lr
        if low_rank > 0 and turn % method.nuclear_every == 0:
            matrix = shrink_singular_values(matrix, low_rank * method.nuclear_every)
        matrix = softshrink(matrix, method.sparsity * method.structure_lr)
        return {_ADJACENCY: matrix.clamp(0, 1)}

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self.weighted_pairs(outer[_ADJACENCY] + self._loops))]
