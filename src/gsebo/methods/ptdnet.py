"""PTDNet: every layer has a network that prunes the edges it propagates over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad
from torch_geometric.data import Data

from gsebo.backbone.base import Features
from gsebo.bilevel import Tree, make_optimizer
from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import (
    require_count,
    require_flag,
    require_from,
    require_not_negative,
    require_share,
)
from gsebo.sparse import Noise, uniform
from gsebo.structure import Propagation
from gsebo.structure.denoise import EdgeNetworks
from gsebo.structure.hard_concrete import HardConcrete
from gsebo.structure.spectral import top_singular_values
from gsebo.training.joint_problem import JointProblem, Member
from gsebo.training.layer_widths import layer_input_widths
from gsebo.training.stopping import SelectBy
from gsebo.training.task import Task

# Those that ask for strengths layer by layer.
_BACKBONES = ("gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage")
_SITE = 1000
_LOWEST_TEMPERATURE = 0.05


@final
@dataclass(kw_only=True, eq=False, repr=False)
class PTDNet(EpochClassifier):
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
            disagreement is one on dropout, which on some graphs leaves no logits.
        compat: As the authors' code: gamma is 0 and zeta 1.01, the share of open gates
            is summed over the passes and the singular values are those of the last
            pass, where otherwise both are means over the passes.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = _BACKBONES

    hidden_channels: int = 256
    dropout: float = 0.0
    inner_lr: float = 0.001
    max_epochs: int = 1000
    patience: int = 100
    select_by: SelectBy = "accuracy"
    passes: int = 3
    l0_weight: float = 0.1
    nuclear_weight: float = 0.01
    consistency_weight: float = 0.01
    num_singular_values: int = 1
    power_iterations: int = 30
    init_temperature: float = 2.0
    temperature_decay: float = 0.99
    gamma: float = -0.1
    zeta: float = 1.1
    edge_channels: int = 16
    pair_channels: int | None = None
    structure_lr: float = 0.001
    shared_dropout: bool = True
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_count(
            passes=self.passes,
            num_singular_values=self.num_singular_values,
            power_iterations=self.power_iterations,
            edge_channels=self.edge_channels,
        )
        if self.pair_channels is not None:
            require_count(pair_channels=self.pair_channels)
        require_not_negative(
            l0_weight=self.l0_weight,
            nuclear_weight=self.nuclear_weight,
            consistency_weight=self.consistency_weight,
            init_temperature=self.init_temperature,
            structure_lr=self.structure_lr,
        )
        require_share(temperature_decay=self.temperature_decay)
        require_from(-1, 0, gamma=self.gamma)
        require_from(1, 2, zeta=self.zeta)
        require_flag(shared_dropout=self.shared_dropout, compat=self.compat)

    def gates(self) -> HardConcrete:
        """The distribution of the gates."""
        if self.compat:
            return HardConcrete(0.0, 1.01)
        return HardConcrete(float(self.gamma), float(self.zeta))

    def temperature(self, step: int) -> float:
        """Of the gates, at a training step."""
        fallen = self.init_temperature * self.temperature_decay**step
        return max(_LOWEST_TEMPERATURE, float(fallen))

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        return self.train_jointly(
            data,
            runs,
            lambda task, run: PTDNetProblem(task, self),
            structure_optimizer=make_optimizer(self.inner_optimizer, self.structure_lr),
        )


class Pass(NamedTuple):
    """What one random pass through the network gives.

    Attributes:
        logits: ``[nodes, classes]``.
        gates: Of the edges, ``[layers, edges]``.
        open_share: Expected share of open gates, summed over layers.
    """

    logits: Tensor
    gates: Tensor
    open_share: Tensor


@final
class PTDNetProblem(JointProblem):
    """Training loss on randomly gated edges; predictions with gates at rest.

    Args:
        task: The network, the graph and the labels.
        method: Its parameters.
    """

    def __init__(self, task: Task, method: PTDNet) -> None:
        super().__init__(task)
        self._method = method
        self._gates = method.gates()
        with torch.random.fork_rng(devices=[]):
            # Not the seed itself, from which the backbone drew its weights.
            torch.manual_seed(Noise(task.seed, 0).keys(_SITE)[0])
            networks = EdgeNetworks(
                layer_input_widths(task), method.edge_channels, method.pair_channels
            )
        self._networks = networks.to(task.device, task.dtype)

    def initial_outer(self) -> Tree:
        """The networks on edges before training."""
        named = self._networks.named_parameters()
        return {name: weight.detach().clone() for name, weight in named}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Cross-entropy of the mean logits, with all penalties."""
        method, count = self._method, int(self._method.passes)
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
        return (
            self.task.loss_of(mean)
            + method.l0_weight * (open_share if method.compat else open_share / count)
            + method.nuclear_weight
            * self.nuclear_norm(passes[-1:] if method.compat else passes)
            + method.consistency_weight * spread
            + self.task.penalty(weights)
            + self._network_penalty(outer)
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
        """Run the network with random gates.

        Args:
            weights: Of the network.
            outer: Of the networks on edges.
            first: Edge logits of layer 0.
            temperature: Of the gates.
            noise: Randomness of dropout and gates.
            shift: Added to the sites of the gates.
        """
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
        count, seed = int(self._method.passes), self.task.seed
        if not self._method.shared_dropout:
            return [(Noise(seed, step * count + number), 0) for number in range(count)]
        layers = len(self._networks.layers)
        return [(Noise(seed, step), number * layers) for number in range(count)]

    def nuclear_norm(self, passes: Sequence[Pass]) -> Tensor:
        """Largest singular values of the gated edges: sum over layers, mean of passes.

        Self-loops are left out.
        """
        if self._method.nuclear_weight == 0:
            return passes[0].gates.new_zeros(())
        graph = self.task.graph
        gates = torch.stack([each.gates for each in passes])
        found = top_singular_values(
            graph.pattern,
            pad(gates, (0, graph.num_loops)),
            int(self._method.num_singular_values),
            int(self._method.power_iterations),
        )
        return found.sum() / len(passes)

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The network with gates that have no noise."""
        told: list[Tensor] = []

        def strengths(layer: int, h: Features) -> Tensor:
            at_rest = self._gates.at_rest(self._edge_logits(outer, layer, h))
            told.append(self._normalised(at_rest))
            return told[-1]

        pattern = self.task.graph.pattern
        self.task.logits(weights, pattern, strengths, None)
        return [Member(Propagation(pattern, torch.stack(told)))]

    def _edge_logits(self, outer: Tree, layer: int, h: Features) -> Tensor:
        logits: Tensor = functional_call(
            self._networks, outer, (layer, h, self.task.graph)
        )
        return logits

    def _normalised(self, gates: Tensor) -> Tensor:
        """The vanilla propagation of the gated edges, with whole self-loops."""
        weights = pad(gates, (0, self.task.graph.num_loops), value=1.0)
        return self.task.backbone.normalise(self.task.graph.pattern, weights)

    def _network_penalty(self, outer: Tree) -> Tensor:
        squares = torch.stack([leaf.square().sum() for leaf in outer.values()])
        return squares.sum() * (self.task.weight_decay / 2)
