"""Pro-GNN: a sparse, low-rank and smooth graph near the given one.

Steps towards sparse and low-rank matrices that are no gradient steps.

The proximal operator of a penalty ``f`` is ``prox(X) = argmin_Z ½ ‖Z - X‖² + f(Z)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softshrink

from gsebo.bilevel import Tree, make_optimizer
from gsebo.graph import Propagation
from gsebo.graph.graph import Graph
from gsebo.methods.base import Run
from gsebo.methods.baselines.pairs import (
    feature_smoothness,
    gram_matrix,
    require_dense_memory,
)
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import Rate, Steps
from gsebo.methods.schedule import EpochClassifier
from gsebo.schema import Count
from gsebo.sparse import CompletePattern, Noise
from gsebo.training import JointProblem, Member, Task
from gsebo.training.history import SelectBy


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


_ADJACENCY = "adjacency"
_WEIGHT_STEPS = 2
# n x n matrices alive at once: those of an epoch, measured, and of each run.
_MATRICES, _MATRICES_PER_RUN = 22, 6


@final
@dataclass(kw_only=True, eq=False, repr=False)
class ProGNN(EpochClassifier):
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

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        dtype = data.x.dtype if data.x.dtype == torch.float64 else torch.float32
        matrices = _MATRICES + _MATRICES_PER_RUN * len(runs)
        require_dense_memory("prognn", matrices, data.num_nodes, dtype, runs[0].device)
        return self.train_jointly(
            data,
            runs,
            lambda task, run: ProGNNProblem(
                task,
                supervision=self.supervision,
                smoothness=self.smoothness,
                shrink_entries_by=self.sparsity * self.structure_lr,
                shrink_values_by=self.low_rank * self.structure_lr,
                nuclear_every=self.nuclear_every,
            ),
            structure_optimizer=make_optimizer("momentum", self.structure_lr),
            in_turns=True,
            weight_steps=_WEIGHT_STEPS,
        )


@final
class ProGNNProblem(JointProblem):
    """The loss of a turn, and the proximal steps after a turn of the structure.

    Args:
        task: The network, the graph and the labels.
        supervision: The paper's gamma.
        smoothness: Its lambda.
        shrink_entries_by: Its alpha times the learning rate of S.
        shrink_values_by: Its beta times the learning rate of S.
        nuclear_every: Turns of the structure between two eigendecompositions.
    """

    dense = True

    def __init__(
        self,
        task: Task,
        *,
        supervision: float,
        smoothness: float,
        shrink_entries_by: float,
        shrink_values_by: float,
        nuclear_every: int,
    ) -> None:
        super().__init__(task)
        self._supervision = supervision
        self._smoothness = smoothness
        self._shrink_entries_by = shrink_entries_by
        self._shrink_values_by = shrink_values_by
        self._nuclear_every = nuclear_every
        features = task.features
        self._gram = gram_matrix(
            features if isinstance(features, Tensor) else features.to_dense()
        )
        self._given = _undirected(task)
        self._pattern = CompletePattern(task.num_nodes, task.device)
        self._loops = torch.eye(task.num_nodes, dtype=task.dtype, device=task.device)

    def initial_outer(self) -> Tree:
        """The given graph, both ways."""
        return {_ADJACENCY: self._given.clone()}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """What the turn minimises: where S is a constant, it is that of the weights."""
        matrix = outer[_ADJACENCY]
        # Half of the gradient goes to either triangle, so that S stays symmetric.
        adjacency = (matrix + matrix.mT) / 2
        logits = self.task.logits(
            weights, *self._propagation(adjacency), Noise(self.task.seed, step)
        )
        fit = self.task.loss_of(logits)
        if not matrix.requires_grad:
            return fit + self.task.penalty(weights)
        distance: Tensor = torch.linalg.matrix_norm(adjacency - self._given)
        smoothness = feature_smoothness(adjacency, self._gram)
        return distance + self._supervision * fit + self._smoothness * smoothness

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Fewer and weaker edges, a lower rank, and entries in [0, 1]."""
        matrix, turn = outer[_ADJACENCY], step // _WEIGHT_STEPS + 1
        if self._shrink_values_by > 0 and turn % self._nuclear_every == 0:
            amount = self._shrink_values_by * self._nuclear_every
            matrix = shrink_singular_values(matrix, amount)
        matrix = shrink_entries(matrix, self._shrink_entries_by)
        return {_ADJACENCY: matrix.clamp(0, 1)}

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The learned graph."""
        return [Member(self._propagation(outer[_ADJACENCY]))]

    def _propagation(self, adjacency: Tensor) -> Propagation:
        entries = self._pattern.values(adjacency + self._loops)
        return Propagation(
            self._pattern, self.task.backbone.normalise(self._pattern, entries)
        )


def _undirected(task: Task) -> Tensor:
    """Matrix of 0 and 1: where an edge is, in whichever direction."""
    size = task.num_nodes
    matrix = torch.zeros(size, size, dtype=task.dtype, device=task.device)
    source, target = task.graph.graph.edge_index.to(task.device)
    matrix[source, target] = 1
    matrix[target, source] = 1
    return matrix
