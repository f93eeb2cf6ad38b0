"""PTDNet: every layer has a network that prunes the edges it propagates over.

Its gates in [0, 1] are exactly 0 or 1 with positive probability:

    s = sigmoid((log u - log(1 - u) + w) / t),   u uniform in (0, 1)
    gate = min(max(s (zeta - gamma) + gamma, 0), 1),   gamma <= 0 and zeta >= 1

(Louizos, Welling and Kingma, ICLR 2018.) A gate is open, that is not 0, where s exceeds
-gamma / (zeta - gamma). The noise is logistic, so that has the probability
sigmoid(w - t log(-gamma / zeta)).

The largest singular values of a sparse matrix are found by power iteration, each step
two sparse products; it is never made dense, nor multiplied by its transpose.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, final

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.func import functional_call
from torch.linalg import vector_norm
from torch.nn.functional import pad

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count
from gsebo.graph import Propagation, Topology
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    JointBaseline,
    new_network,
    run_layers,
    weights_of,
)
from gsebo.methods.parameters import (
    Rate,
    Samples,
    ShareBelowOne,
    SideWidth,
    Steps,
    Width,
)
from gsebo.nn.base import Features
from gsebo.sparse import Noise, Pattern, row_expand, spmm, uniform
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy

# Places that draw: gates of each layer and weights; where power iterations begin.
_SITE, _START_SITE = 1000, 1900
_LOWEST_TEMPERATURE = 0.05
# Those that ask for strengths layer by layer.
_BACKBONES = ("gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage")
# How near to 0 and 1 the uniform numbers may come: the noise stays within ±16.
_MARGIN = 1e-7


@final
@dataclass(kw_only=True, eq=False, repr=False)
class PTDNet(JointBaseline):
    """Edges are pruned layer by layer (Luo et al., WSDM 2021).

    A network for each layer sees what the layer sees of the two ends of an edge and
    gives it a gate in [0, 1], random while training (hard concrete). The gated graph,
    with self-loops of weight one, is normalised again. Loss: cross-entropy of the mean
    of several passes, plus the expected number of open gates, plus the largest singular
    values of the gated graph, plus the spread of the passes, plus weight decay of all
    parameters. The defaults are the authors'; those of ``gamma`` and ``zeta`` are from
    the paper of the hard concrete distribution (see ``compat``).

    Args:
        passes: Random passes of each training step.
        l0_weight: Of the expected share of open gates, summed over layers (λ1).
        nuclear_weight: Of the singular values, summed over layers (λ3).
        consistency_weight: Of half the squared distance of the passes' logits from
            their mean, summed over nodes, classes and passes.
        num_singular_values: How many singular values of each layer are penalised.
        power_iterations: Steps of the power iteration that finds each of them.
        init_temperature: Of the gates, at the first step.
        temperature_decay: Factor of each further step, down to 0.05.
        gamma: Lower end of the stretched gates, in [-1, 0]; with 0 none ever closes,
            and the share of open ones has no gradient.
        zeta: Upper end of the stretched gates, in [1, 2].
        edge_channels: Width of the two views of the ends of an edge.
        pair_channels: Width of a layer that sees both; without one, as published, a
            logit is a sum of one number for each end.
        structure_lr: Learning rate of the networks on edges; the optimiser is that of
            the weights.
        shared_dropout: Let the passes of a step share their dropout masks, so that they
            disagree by their gates alone. With masks of their own the penalty on
            disagreement is one on dropout, which on some graphs leaves no logits. It
            became the default after that had been seen in test figures.
        compat: As the authors' code: gamma is 0 and zeta 1.01, the share of open gates
            is summed over the passes and the singular values are those of the last
            pass, where otherwise both are means over the passes.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = _BACKBONES

    hidden_channels: Width = 256
    dropout: ShareBelowOne = 0.0
    inner_lr: Rate = 0.001
    max_epochs: Steps = 1000
    patience: Count = 100
    select_by: SelectBy = "accuracy"
    passes: Samples = 3
    l0_weight: Rate = 0.1
    nuclear_weight: Rate = 0.01
    consistency_weight: Rate = 0.01
    num_singular_values: Count = 1
    power_iterations: Steps = 30
    init_temperature: Rate = 2.0
    temperature_decay: ShareBelowOne = 0.99
    gamma: Annotated[float, Meta(ge=-1, le=0)] = -0.1
    zeta: Annotated[float, Meta(ge=1, le=2)] = 1.1
    edge_channels: SideWidth = 16
    pair_channels: SideWidth | None = None
    structure_lr: Rate = 0.001
    shared_dropout: bool = True
    compat: bool = False

    def temperature(self, step: int) -> float:
        """Of the gates, at a training step."""
        fallen = self.init_temperature * self.temperature_decay**step
        return max(_LOWEST_TEMPERATURE, float(fallen))

    def _problem(self, task: Task) -> "PTDNetProblem":
        return PTDNetProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer(self.inner_optimizer, self.structure_lr)


@final
class EdgeNetwork(nn.Module):
    """One logit for every edge, from the representations of its ends.

        p = ReLU(h_source W_source + b_source),   q = ReLU(h_target W_target + b_target)
        w = [p || q] W + b,   or   ReLU([p || q] W + b) W_out + b_out

    A product with [p || q] is a sum of one for each end. So what is computed for every
    edge is as wide as the pair layer, or a single number where there is none.
    """

    def __init__(
        self, in_channels: int, channels: int, pair_channels: int | None
    ) -> None:
        super().__init__()
        self.source_weight = _he(in_channels, channels)
        self.source_bias = nn.Parameter(torch.zeros(channels))
        self.target_weight = _he(in_channels, channels)
        self.target_bias = nn.Parameter(torch.zeros(channels))
        self.joint_weight = _he(2 * channels, pair_channels or 1)
        self.joint_bias = nn.Parameter(torch.zeros(pair_channels or 1))
        self.has_pair_layer = pair_channels is not None
        if pair_channels is not None:
            self.out_weight = _he(pair_channels, 1)
            self.out_bias = nn.Parameter(torch.zeros(1))

    def forward(self, h: Features, graph: Topology) -> Tensor:
        """Return the logits, ``[edges]``; self-loops get none."""
        source = torch.relu(h @ self.source_weight + self.source_bias)
        target = torch.relu(h @ self.target_weight + self.target_bias)
        from_source, from_target = self.joint_weight.chunk(2)
        # row_expand has a derivative that adds up in the same order on every device.
        joint = (
            row_expand(graph.pattern.T, (source @ from_source).T.contiguous())
            + row_expand(graph.pattern, (target @ from_target).T.contiguous())
        )[:, : graph.num_edges]
        joint = joint + self.joint_bias.unsqueeze(-1)
        if not self.has_pair_layer:
            return joint.squeeze(0)
        return (self.out_weight.T @ torch.relu(joint)).squeeze(0) + self.out_bias


@final
class EdgeNetworks(nn.Module):
    """One network for each layer of a backbone, by the widths of their inputs."""

    def __init__(
        self, widths: Sequence[int], channels: int, pair_channels: int | None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EdgeNetwork(width, channels, pair_channels) for width in widths
        )

    def forward(self, layer: int, h: Features, graph: Topology) -> Tensor:
        """Return the logits of one layer, ``[edges]``."""
        logits: Tensor = self.layers[layer](h, graph)
        return logits


def _he(rows: int, columns: int) -> nn.Parameter:
    """He-normal initial weights (fan-in ``rows``)."""
    weight = nn.init.kaiming_normal_(torch.empty(columns, rows), nonlinearity="relu")
    return nn.Parameter(weight.T.contiguous())


class HardConcrete(NamedTuple):
    """A stretched and clipped binary concrete variable for every logit."""

    gamma: float = -0.1  # 0 means that no gate closes for good.
    zeta: float = 1.1

    def sample(self, logits: Tensor, uniform: Tensor, temperature: float) -> Tensor:
        """Draw gates; the lower the temperature, the nearer they are to 0 or 1."""
        drawn = uniform.clamp(_MARGIN, 1 - _MARGIN)
        noise = drawn.log() - (-drawn).log1p()
        return self._clipped(torch.sigmoid((noise + logits) / temperature))

    def at_rest(self, logits: Tensor) -> Tensor:
        """The gates of an evaluation: no noise, temperature 1."""
        return self._clipped(torch.sigmoid(logits))

    def open_probability(self, logits: Tensor, temperature: float) -> Tensor:
        """How likely each gate is not 0; the sum is the expected number of them."""
        if self.gamma == 0:
            return torch.ones_like(logits)
        return torch.sigmoid(logits - temperature * math.log(-self.gamma / self.zeta))

    def _clipped(self, s: Tensor) -> Tensor:
        return (s * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)


def top_singular_values(
    pattern: Pattern, values: Tensor, count: int = 1, iterations: int = 30
) -> Tensor:
    """The ``count`` largest singular values, differentiable by ``values``.

    The singular vectors are found without a derivative, and one more step is taken with
    it. Where the iteration has converged the derivative by a value is the product of
    the two singular vectors at its entry, and 0 for a singular value that is 0. The
    values ``[..., entries]`` are not negative, the result is ``[..., count]``, in
    descending order where the iteration has converged.
    """
    fixed = values.detach()
    earlier = fixed.new_zeros(*fixed.shape[:-1], pattern.num_columns, 0)
    floor = fixed.new_zeros(())
    found: list[Tensor] = []
    for place in range(count):
        # The first singular vector of a matrix without negative entries has none, so
        # that this is not orthogonal to it; the others begin anywhere.
        vector = fixed.new_ones(pattern.num_columns, 1)
        if place > 0:
            shape = tuple(vector.shape)
            vector = uniform(shape, Noise(0, place), _START_SITE, fixed) - 0.5
        for _ in range(iterations):
            vector = _power_step(pattern, fixed, vector, earlier, floor)
        vector = _power_step(pattern, values, vector, earlier, floor)
        found.append(vector_norm(spmm(pattern, values, vector), dim=-2))
        earlier = torch.cat([earlier, vector.detach()], dim=-1)
        if place == 0:
            # What rounding leaves of a product by the largest vector.
            largest = found[0].detach().unsqueeze(-1)
            floor = 10 * torch.finfo(fixed.dtype).eps * largest.square()
    return torch.cat(found, dim=-1)


def _power_step(
    pattern: Pattern, values: Tensor, vector: Tensor, earlier: Tensor, floor: Tensor
) -> Tensor:
    """Aᵀ A v without its part along earlier vectors, scaled to length one (or 0)."""
    moved = spmm(pattern.T, values, spmm(pattern, values, vector))
    moved = _orthogonal(moved, earlier)
    length = vector_norm(moved, dim=-2, keepdim=True)
    vanished = length <= floor
    moved = (moved / length.masked_fill(vanished, 1)).masked_fill(vanished, 0)
    # Once more: where little was left, rounding has turned it towards earlier vectors.
    return _orthogonal(moved, earlier)


def _orthogonal(vector: Tensor, earlier: Tensor) -> Tensor:
    if earlier.shape[-1] == 0:
        return vector
    return vector - earlier @ (earlier.mT @ vector)


class Pass(NamedTuple):
    """What one random pass through the network gives."""

    logits: Tensor
    gates: Tensor  # Of the edges, [layers, edges].
    open_share: Tensor  # Expected share of open gates, summed over layers.


@final
class PTDNetProblem(BaselineProblem[PTDNet]):
    """Training loss on randomly gated edges; predictions with gates at rest."""

    def __init__(self, task: Task, method: PTDNet) -> None:
        super().__init__(task, method)
        stretch = (0.0, 1.01) if method.compat else (method.gamma, method.zeta)
        self._gates = HardConcrete(*map(float, stretch))
        with torch.no_grad():
            _, read = run_layers(task, task.initial_weights(), self.given, None)
        sizes = [h.shape[1] for h in read], method.edge_channels, method.pair_channels
        self._networks = new_network(task, _SITE, EdgeNetworks, *sizes)

    def initial_outer(self) -> Tree:
        return weights_of(self._networks)

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        method, count = self.method, int(self.method.passes)
        # No pass changes the features, so the first layer has the same logits in all.
        first = self._edge_logits(outer, 0, self.task.features)
        temperature = method.temperature(step)
        passes = [
            self.random_pass(weights, outer, first, temperature, noise, shift)
            for noise, shift in self._noise_of_passes(step)
        ]
        logits = torch.stack([each.logits for each in passes])
        mean = logits.mean(0)
        spread = (logits - mean).square().sum() / 2
        open_share = torch.stack([each.open_share for each in passes]).sum()
        squares = torch.stack([leaf.square().sum() for leaf in outer.values()])
        return (
            self.task.loss_of(mean)
            + method.l0_weight * (open_share if method.compat else open_share / count)
            + method.nuclear_weight
            * self.nuclear_norm(passes[-1:] if method.compat else passes)
            + method.consistency_weight * spread
            + self.task.penalty(weights)
            + squares.sum() * (self.task.weight_decay / 2)
        )

    def random_pass(
        self,
        weights: Tree,
        outer: Tree,
        first: Tensor,
        temperature: float,
        noise: Noise,
        shift: int,
    ) -> Pass:
        """Run the network with random gates; the edge logits of layer 0 are given."""
        gates: list[Tensor] = []
        shares: list[Tensor] = []

        def strengths(layer: int, h: Features) -> Tensor:
            logits = first if layer == 0 else self._edge_logits(outer, layer, h)
            drawn = uniform((logits.numel(),), noise, _SITE + layer + shift, logits)
            gates.append(self._gates.sample(logits, drawn, temperature))
            is_open = self._gates.open_probability(logits, temperature)
            shares.append(is_open.sum() / max(is_open.numel(), 1))
            return self._normalised(gates[-1])

        logits = self.task.logits(weights, self.task.graph.pattern, strengths, noise)
        return Pass(logits, torch.stack(gates), torch.stack(shares).sum())

    def _noise_of_passes(self, step: int) -> list[tuple[Noise, int]]:
        """Noise of each pass of a step, and by how much its gates have other sites."""
        count, seed = int(self.method.passes), self.task.seed
        if not self.method.shared_dropout:
            return [(Noise(seed, step * count + number), 0) for number in range(count)]
        layers = len(self._networks.layers)
        return [(Noise(seed, step), number * layers) for number in range(count)]

    def nuclear_norm(self, passes: Sequence[Pass]) -> Tensor:
        """Largest singular values without self-loops: sum of layers, mean of passes."""
        if self.method.nuclear_weight == 0:
            return passes[0].gates.new_zeros(())
        graph = self.task.graph
        gates = torch.stack([each.gates for each in passes])
        found = top_singular_values(
            graph.pattern,
            pad(gates, (0, graph.num_loops)),
            int(self.method.num_singular_values),
            int(self.method.power_iterations),
        )
        return found.sum() / len(passes)

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        told: list[Tensor] = []

        def strengths(layer: int, h: Features) -> Tensor:
            at_rest = self._gates.at_rest(self._edge_logits(outer, layer, h))
            told.append(self._normalised(at_rest))
            return told[-1]

        pattern = self.task.graph.pattern
        self.task.logits(weights, pattern, strengths, None)
        return [Member(Propagation(pattern, torch.stack(told)))]

    def _edge_logits(self, outer: Tree, layer: int, h: Features) -> Tensor:
        inputs = (layer, h, self.task.graph)
        logits: Tensor = functional_call(self._networks, outer, inputs)
        return logits

    def _normalised(self, gates: Tensor) -> Tensor:
        """The vanilla propagation of the gated edges, with whole self-loops."""
        graph = self.task.graph
        weights = pad(gates, (0, graph.num_loops), value=1.0)
        if graph.weights is not None:
            weights = weights * graph.weights.to(weights)
        return self.task.backbone.normalise(graph.pattern, weights)
