"""Robust GCN: hidden layers are Gaussians, and what is uncertain counts less."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from gsebo.bilevel import Tree
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline
from gsebo.methods.parameters import Rate
from gsebo.nn.base import (
    SYMMETRIC,
    Features,
    LayerStrengths,
    SizedBackbone,
    glorot,
    require_between,
    strength_at,
)
from gsebo.sparse import Noise, Pattern, dropout, normal, spmm
from gsebo.training import Member, Task

_SMALLEST = 1e-8
# Far from the places of a network and of what draws graphs for it.
_SAMPLE_SITE = 900_000


class Gaussian(NamedTuple):
    """A normal distribution with independent channels for each node."""

    mean: Tensor  # [nodes, channels]
    variance: Tensor  # Alike, not negative.

    def propagated(
        self, pattern: Pattern, strength: Tensor, distrust: float
    ) -> "Gaussian":
        """The distribution of sums over neighbors, each as far as it is certain.

        With a_j = exp(-distrust · variance_j) the sum Σ_j s_ij a_j z_j of independent
        Gaussians has the mean Σ_j s_ij a_j mean_j and the variance Σ_j s_ij² a_j²
        variance_j. At the vanilla strengths s² is D^-1 (A + I) D^-1.
        """
        attention = (-distrust * self.variance).exp()
        mean = spmm(pattern, strength, self.mean * attention)
        kept = self.variance * attention.square()
        return Gaussian(mean, spmm(pattern, strength.square(), kept))

    def divergence(self) -> Tensor:
        """Distance from the standard normal, summed over nodes, without a constant.

        ½ Σ_i mean_c (mean² + variance - log variance): the mean over channels, instead
        of the sum of the paper, is that of public code.
        """
        terms = self.mean.square() + self.variance
        terms = terms - (self.variance + _SMALLEST).log()
        return terms.mean(-1).sum() / 2

    def sample(self, noise: Noise) -> Tensor:
        """Draw one row for each node."""
        shape = tuple(self.mean.shape)
        drawn = normal(shape, noise, _SAMPLE_SITE, self.mean)
        return self.mean + drawn * (self.variance + _SMALLEST).sqrt()


@final
class GaussianLayer(nn.Module):
    """Means and variances of the next layer: ELU(M W), ReLU(V W'), not propagated."""

    def __init__(self, in_channels: int, out_channels: int, rate: float) -> None:
        super().__init__()
        self.mean_weight = glorot(in_channels, out_channels)
        self.variance_weight = glorot(in_channels, out_channels)
        self.dropout = rate

    def forward(
        self, mean: Features, variance: Features, noise: Noise | None, site: int
    ) -> Gaussian:
        """Where features are both, they are dropped together."""
        mean_site, variance_site = site, site if variance is mean else site + 1
        mean = dropout(mean, self.dropout, noise, mean_site)
        variance = dropout(variance, self.dropout, noise, variance_site)
        return Gaussian(
            elu(mean @ self.mean_weight), torch.relu(variance @ self.variance_weight)
        )


@final
@dataclass(kw_only=True, eq=False, repr=False)
class RGCNNet(SizedBackbone):
    """Robust GCN: Gaussians are propagated; uncertain nodes are attended to less.

    A training step draws from the last layer, predictions are made with its mean.
    (Public code draws there, too, so that no two predictions are the same.)

    Args:
        distrust: How fast attention exp(-distrust · variance) falls (gamma).
    """

    normalisation = SYMMETRIC
    distrust: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1e6, distrust=self.distrust)
        self.layers = nn.ModuleList(
            GaussianLayer(*size, self.dropout) for size in self.sizes()
        )

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        mean, variance = features, features
        for number, layer in enumerate(self.layers):
            strength = strength_at(strengths, number, mean)
            hidden: Gaussian = layer(mean, variance, noise, 2 * number)
            hidden = hidden.propagated(pattern, strength, self.distrust)
            mean, variance = hidden
        return hidden.mean if noise is None else hidden.sample(noise)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class RGCN(JointBaseline):
    """Gaussians as hidden layers (Zhu et al., KDD 2019).

    Changed edges make what a node reads of its neighbors contradictory. Each layer has
    a mean and a variance for each node, neighbors of a large variance count less, and
    the first layer is held near the standard normal by its divergence. A network of its
    own; ``backbone_options`` are those of :class:`RGCNNet`.

    Args:
        backbone: ``"rgcn"``.
        weight_decay: λ of the penalty λ/2 ‖W‖², here on the first layer alone; the
            published beta2 = 5e-4 counts ‖W‖², which is twice as much.
        divergence: Weight of the divergence (beta1).
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("rgcn",)

    backbone: str | type | nn.Module = field(default="rgcn", kw_only=False)
    weight_decay: Rate = 1e-3
    divergence: Rate = 5e-4

    def _problem(self, task: Task) -> "RGCNProblem":
        return RGCNProblem(task, self)


@final
class RGCNProblem(BaselineProblem[RGCN]):
    """Cross-entropy of what is drawn, divergence and decay of the first layer."""

    learned = False

    def initial_outer(self) -> Tree:
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        task, noise = self.task, Noise(self.task.seed, step)
        fit = task.loss_of(task.logits(weights, *self.given, noise))
        hidden = self._first_layer(weights, noise)
        divergence = self.method.divergence * hidden.divergence()
        return fit + divergence + task.first_layer_penalty(weights)

    def _first_layer(self, weights: Tree, noise: Noise) -> Gaussian:
        """What the first layer gives in the same step, before it is propagated."""
        named, features = self.task.named_weights(weights), self.task.features
        own = {
            name.removeprefix("layers.0."): weight
            for name, weight in named.items()
            if name.startswith("layers.0.")
        }
        layer: nn.Module = self.task.backbone.get_submodule("layers.0")
        hidden: Gaussian = torch.func.functional_call(
            layer, own, (features, features, noise, 0)
        )
        return hidden

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self.given)]
