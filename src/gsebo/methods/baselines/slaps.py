"""SLAPS: a graph made of the features alone, which also has to restore them.

A generator gives every node itself and k others, the entries of a sparse matrix S:

    fp       elu(θ_ij) + 1 for the nearest by the features, each with its own θ = 0
    full     the same for all pairs, of which the others begin with next to no weight
    mlp_d    the cosines of X diag(w₀), ReLU, diag(w₁), nothing below 0
    mlp      the same with matrices and biases in the place of w₀ and w₁

The entries of the last two are where those cosines are largest, and change as the
layers learn; only there they are kept, and differentiated. The graph is (S + Sᵀ) / 2,
normalised as a GCN does.

It is trained by the training labels through a GCN, and by a denoising auto-encoder: a
second GCN on the same graph has to say which masked features were there. Where features
are 0 or 1 it is shown some of the ones as zeros, and asked for these and for some true
zeros by cross-entropy; otherwise it is shown zeros in the place of some numbers, and
asked for these by their squared errors. Only masked numbers are computed.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits, elu, mse_loss

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count
from gsebo.graph import Graph, Propagation
from gsebo.memory import require_memory
from gsebo.methods.baselines.pairs import dense_features
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    EntrySum,
    JointBaseline,
    LastOf,
    minimise,
    new_network,
    weights_of,
    with_itself,
    without_zeros,
)
from gsebo.methods.parameters import (
    FeaturesName,
    Positive,
    Rate,
    ShareBelowOne,
    SideWidth,
    Steps,
    StepsOrZero,
    Width,
)
from gsebo.nn.base import Features, glorot
from gsebo.sparse import (
    CompletePattern,
    Noise,
    Pattern,
    SparseFeatures,
    dropout,
    sddmm,
    spmm,
    uniform,
)
from gsebo.sparse.operators import unit_rows
from gsebo.structure.candidates import nearest_neighbors
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy

GeneratorKind = Literal["fp", "full", "mlp", "mlp_d"]
_SCORE = "score"
# The score of an edge that begins with next to no weight.
_HARDLY = -6.0
_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
Activation = Literal["relu", "tanh"]
# Places that draw: what is masked, edges of both networks, a layer, weights.
_MASK_SITE, _EDGE_SITE, _HIDDEN_SITE, _WEIGHT_SITE = 1000, 1002, 1004, 1005
# Matrices of the size of an embedding that a generator holds in a step.
_EMBEDDINGS = 8
# Matrices of all pairs: scores, what Adam remembers of them, graphs, masks, gradients.
PAIR_MATRICES = 24
# Two dense layers, what Adam remembers of them, their gradients, and new ones.
_LAYERS = 12


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SLAPS(JointBaseline):
    """Structure learning with self-supervision (Fatemi et al., NeurIPS 2021).

    The edges of the given graph are not used: nodes are joined to those with similar
    features, and how is learned from the training labels and from how well a second
    network restores masked features over the same graph. The defaults are the authors'
    for Cora with ``"mlp"``, but that the epochs that they spend on the second network
    alone are not counted among the others. (``"mlp_d"``: ``num_neighbors`` 15,
    ``weight_decay`` 0.05. ``"fp"``: ``num_neighbors`` 30, ``inner_lr`` 1e-3,
    ``structure_lr`` 0.01, ``edge_dropout`` 0.25, ``restoring_edge_dropout`` 0.5.)

    Args:
        generator: How edges come about: ``"mlp"``, ``"mlp_d"``, ``"fp"`` or ``"full"``,
            which is the authors' FP and takes memory for all pairs of nodes.
        num_neighbors: k, how many others a node takes.
        activation: Between the two layers of the generator.
        structure_lr: Learning rate of the generator and of the second network.
        restoring: λ, weight of the loss of the second network.
        restoring_epochs: Steps on that loss alone, before the first on labels.
        restoring_hidden: Width of the second network.
        restoring_dropout: Rate of dropout in it.
        restoring_edge_dropout: Share of the edges that it does not see in a step.
        masked: One of so many features is masked in each step.
        zeros: So many true zeros are asked for with each one that is masked.
        edge_dropout: Share of the edges that each step of the GCN drops.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)
    uses_edge_weight: ClassVar[bool] = False

    hidden_channels: Width = 32
    features: FeaturesName = "largest"
    max_epochs: Steps = 1600
    patience: Count = 1600
    select_by: SelectBy = "first_accuracy"
    generator: GeneratorKind = "mlp"
    num_neighbors: Count = 20
    activation: Activation = "relu"
    structure_lr: Rate = 1e-3
    restoring: Rate = 10.0
    restoring_epochs: StepsOrZero = 400
    restoring_hidden: SideWidth = 512
    restoring_dropout: ShareBelowOne = 0.5
    restoring_edge_dropout: ShareBelowOne = 0.25
    masked: Positive = 10.0
    zeros: Rate = 5.0
    edge_dropout: ShareBelowOne = 0.5

    def _problem(self, task: Task) -> "SLAPSProblem":
        return SLAPSProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer("adam", self.structure_lr)

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        return PAIR_MATRICES * runs * (self.generator == "full")


@final
class TakenPairs:
    """The entries of (S + Sᵀ) / 2, for one choice of what each node takes.

    Args:
        taken: Others and those who take them, ``[2, pairs]``.
        size: Number of nodes.
    """

    def __init__(self, taken: Tensor, size: int) -> None:
        row, column = with_itself(taken, size)
        self.entries = Pattern.from_positions(row, column, size)
        self._sum = EntrySum(size, (row, column), (column, row))

    def symmetric(self, values: Tensor) -> tuple[Pattern, Tensor]:
        """Entries and weights of (S + Sᵀ) / 2, from the entries of S."""
        return self._sum.pattern, self._sum(values, values) / 2


@final
class GraphGenerator:
    """Makes graphs of features; its parameters are a tree.

    Args:
        features: Of the nodes.
        kind: Which generator.
        num_neighbors: k.
        activation: Between two layers.
        on: A graph over which both layers propagate; without, none does.
        also: Sources and targets ``[2, edges]`` that ``"fp"`` may join beside the
            nearest, hardly at the start, as ``"full"`` may join all.
    """

    def __init__(
        self,
        features: Features,
        kind: GeneratorKind,
        num_neighbors: int,
        activation: Activation,
        on: Propagation | None = None,
        also: Tensor | None = None,
    ) -> None:
        self._kind, self._num_neighbors, self._on = kind, num_neighbors, on
        self._activation = _ACTIVATIONS[activation]
        self._size, self._channels = features.shape
        self._like = torch.zeros((), dtype=features.dtype, device=features.device)
        self._nearest: TakenPairs | None = None
        if kind in ("fp", "full"):
            taken = nearest_neighbors(features, num_neighbors)
        if kind == "full":
            self._every = CompletePattern(self._size, features.device)
            row, column = with_itself(taken, self._size)
            self._start = self._like.new_full((self._every.num_entries,), _HARDLY)
            self._start[row * self._size + column] = 0
            return
        if kind == "fp":
            others = taken[:, :0] if also is None else self._others(taken, also)
            pairs = TakenPairs(torch.cat([taken, others], dim=1), self._size)
            self._start = self._like.new_zeros(pairs.entries.num_entries)
            self._start[taken.shape[1] : taken.shape[1] + others.shape[1]] = _HARDLY
            self._nearest = pairs
            return
        self._features = features
        if kind == "mlp_d" or on is not None:
            self._features = self._propagated(dense_features(features))

    def initial(self) -> Tree:
        """Parameters with which the graph is that of the nearest by features."""
        if self._kind in ("fp", "full"):
            return {_SCORE: self._start.clone()}
        one, zero = self._like.new_ones, self._like.new_zeros
        if self._kind == "mlp_d":
            return {f"weight{layer}": one(self._channels) for layer in range(2)}
        layers = {}
        for layer in range(2):
            layers[f"weight{layer}"] = one(self._channels).diag()
            layers[f"bias{layer}"] = zero(self._channels)
        return layers

    @torch.no_grad()
    def search(self, parameters: Tree) -> TakenPairs | None:
        """Let every node take those that are most similar to it; None: all of them."""
        if self._kind in ("fp", "full"):
            return self._nearest
        embedding = self._embedding(parameters)
        taken = nearest_neighbors(embedding, self._num_neighbors)
        return TakenPairs(taken, self._size)

    def graph(
        self, parameters: Tree, pairs: TakenPairs | None
    ) -> tuple[Pattern, Tensor]:
        """Entries and weights, differentiable; entries of S are those of ``pairs``."""
        if pairs is None:
            weight = self._every.matrix(elu(parameters[_SCORE]) + 1)
            return self._every, self._every.values((weight + weight.mT) / 2)
        if self._kind == "fp":
            return pairs.symmetric(elu(parameters[_SCORE]) + 1)
        unit = unit_rows(self._embedding(parameters))
        return pairs.symmetric(sddmm(pairs.entries, unit, unit).relu())

    def _others(self, taken: Tensor, also: Tensor) -> Tensor:
        """Those of the edges ``also`` that are not taken anyway."""
        known, new = (edges[1] * self._size + edges[0] for edges in (taken, also))
        return also[:, ~torch.isin(new, known)]

    def _embedding(self, parameters: Tree) -> Tensor:
        hidden = self._activation(self._layer(parameters, 0, self._features))
        return self._layer(parameters, 1, self._propagated(hidden))

    def _layer(self, parameters: Tree, layer: int, x: Features) -> Tensor:
        weight = parameters[f"weight{layer}"]
        if weight.dim() == 1:
            return dense_features(x) * weight
        # Sparse features stay so on their way into a dense layer.
        return x @ weight + parameters[f"bias{layer}"]

    def _propagated(self, x: Tensor) -> Tensor:
        return x if self._on is None else spmm(*self._on, x)


def room_for(
    features: Features, kind: GeneratorKind, what: str, *, instead: str
) -> None:
    """Refuse a generator whose embeddings and layers do not fit into memory."""
    nodes, channels = features.shape
    if kind in ("fp", "full"):
        return
    layers = _LAYERS * channels**2 if kind == "mlp" else 0
    require_memory(
        (_EMBEDDINGS * nodes * channels + layers) * features.dtype.itemsize,
        features.device,
        what=f"{what} on {nodes} nodes with {channels} features",
        instead=instead,
    )


@final
class FeatureMask:
    """Draws what the second network does not see, and what it is asked for.

    Where features are zeros and ones, each one is masked with probability 1 / r, and
    zeros are asked for that are drawn alike, about as many as ``zeros`` times these.
    Of other features each is masked with the same probability.
    """

    def __init__(self, features: Features, r: float, zeros: float) -> None:
        self._features, self._rate = features, min(1 / r, 1.0)
        stored = features if isinstance(features, Tensor) else features.values
        self.binary = bool(((stored == 0) | (stored == 1)).all())
        self._like = torch.empty((), dtype=torch.float64, device=features.device)
        # Of sparse features some of what is stored may be zero.
        self._entry = self._place = stored.reshape(-1).nonzero().squeeze(-1)
        if isinstance(features, SparseFeatures):
            pattern = features.pattern
            every = pattern.row_of_entry * pattern.num_columns + pattern.column_of_entry
            self._place = every[self._entry]
        self._num_zeros = round(self._rate * zeros * self._place.numel())

    def draw(self, noise: Noise) -> tuple[Features, Tensor, Tensor]:
        """What is seen, where something is asked, and what is right there.

        Places are sorted, each once: row times the number of columns, plus column.
        """
        shape = self._features.shape
        count = self._place.numel() if self.binary else shape.numel()
        hidden = uniform((count,), noise, _MASK_SITE, self._like) < self._rate
        if not self.binary:
            masked = hidden.nonzero().squeeze(-1)
            whole = dense_features(self._features).reshape(-1)
            seen = whole.masked_fill(hidden, 0).view(shape)
            return seen, masked, whole[masked]
        masked = self._place[hidden]
        drawn = uniform((self._num_zeros,), noise, _MASK_SITE + 1, self._like)
        zeros = (drawn * shape.numel()).long()
        zeros = zeros[~torch.isin(zeros, self._place)]
        asked = torch.unique(torch.cat([masked, zeros]))
        right = torch.isin(asked, masked).to(self._features.dtype)
        return self._without(self._entry[hidden]), asked, right

    def _without(self, entries: Tensor) -> Features:
        """The features with zeros at some entries."""
        features = self._features
        if isinstance(features, Tensor):
            left = features.reshape(-1).index_fill(0, entries, 0)
            return left.view(features.shape)
        left = features.values.index_fill(0, entries, 0)
        return SparseFeatures(features.pattern, left)


@final
class Restorer(nn.Module):
    """A GCN of two layers that only computes the features it is asked for."""

    def __init__(self, channels: int, hidden: int, rate: float) -> None:
        super().__init__()
        self.first = glorot(channels, hidden)
        self.first_bias = nn.Parameter(torch.zeros(hidden))
        self.second = glorot(channels, hidden)
        self.second_bias = nn.Parameter(torch.zeros(channels))
        self._rate = rate

    def forward(
        self, seen: Features, graph: Propagation, asked: Pattern, noise: Noise | None
    ) -> Tensor:
        """One number for each entry of ``asked``, nodes by features."""
        hidden = torch.relu(spmm(*graph, seen @ self.first) + self.first_bias)
        spread = spmm(*graph, dropout(hidden, self._rate, noise, _HIDDEN_SITE))
        bias = self.second_bias[asked.column_of_entry]
        return sddmm(asked, spread, self.second) + bias


@final
class SLAPSProblem(BaselineProblem[SLAPS]):
    """Training loss on the learned graph, and restoring masked features over it.

    The outer variables are the parameters of the generator and of the second network.
    """

    def __init__(self, task: Task, method: SLAPS) -> None:
        super().__init__(task, method)
        features, kind = task.features, method.generator
        other = "generator='mlp_d'" if kind == "mlp" else "generator='fp'"
        room_for(features, kind, f"generator={kind!r}", instead=other)
        self.generator = GraphGenerator(
            features, kind, method.num_neighbors, method.activation
        )
        self._names = tuple(self.generator.initial())
        sizes = features.shape[1], method.restoring_hidden, method.restoring_dropout
        self._restorer = new_network(task, _WEIGHT_SITE, Restorer, *sizes)
        self._mask = FeatureMask(features, method.masked, method.zeros)
        self._pairs_of = LastOf(self.generator.search)

    def initial_outer(self) -> Tree:
        """Both networks after some steps of restoring alone."""
        return minimise(
            self._restoring_alone,
            self.generator.initial() | weights_of(self._restorer),
            self.method._structure_optimizer(),
            self.method.restoring_epochs,
        )

    def generated(self, outer: Tree) -> Propagation:
        """The graph of both networks, in its vanilla propagation, differentiable."""
        own = {name: outer[name] for name in self._names}
        return self.weighted(*self.generator.graph(own, self._pairs_of(own)))

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        # The first steps have drawn their masks in restoring alone.
        noise = Noise(self.task.seed, self.method.restoring_epochs + step)
        graph = self.generated(outer)
        rate = self.method.edge_dropout
        left = dropout(graph.strengths, rate, noise, _EDGE_SITE + 1)
        loss = self.loss_on(Propagation(graph.pattern, left), weights, noise)
        if self.method.restoring == 0:
            return loss
        return loss + self.method.restoring * self.restoring(outer, graph, noise)

    def restoring(self, outer: Tree, graph: Propagation, noise: Noise) -> Tensor:
        """Mean loss over all that is asked for; without anything it is 0."""
        seen, place, right = self._mask.draw(noise)
        size, width = self.task.features.shape
        asked = Pattern.from_positions(place // width, place % width, size, width)
        rate = self.method.restoring_edge_dropout
        left = dropout(graph.strengths, rate, noise, _EDGE_SITE)
        own = {name: leaf for name, leaf in outer.items() if name not in self._names}
        inputs = seen, Propagation(graph.pattern, left), asked, noise
        found = functional_call(self._restorer, own, inputs)
        if not place.numel():
            nothing: Tensor = found.sum()
            return nothing
        if self._mask.binary:
            return binary_cross_entropy_with_logits(found, right)
        return mse_loss(found, right)

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(without_zeros(self.generated(outer)))]

    def _restoring_alone(self, outer: Tree, step: int) -> Tensor:
        noise, weight = Noise(self.task.seed, step), self.method.restoring
        return weight * self.restoring(outer, self.generated(outer), noise)
