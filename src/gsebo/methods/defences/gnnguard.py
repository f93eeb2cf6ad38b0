"""GNNGuard: in every layer neighbors count by how similar they are, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from gsebo.graph import Graph
from gsebo.methods.fitting import Outcome
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn.base import (
    Features,
    LayerStrengths,
    SizedBackbone,
    require_between,
    strength_at,
)
from gsebo.nn.gcn import GCNLayer
from gsebo.sparse import Noise, Pattern, dropout, row_expand, row_sum, sddmm
from gsebo.sparse.operators import unit_rows
from gsebo.structure.evidence import row_overlap


def guarded_weights(
    pattern: Pattern, strength: Tensor, similarity: Tensor, kept: Tensor
) -> Tensor:
    """What each entry counts in one layer, ``[entries]``.

    Of the N neighbors of a node that are kept, bool ``[entries]``, and of itself,

        w_ij = c_ij / Σ_k c_ik · N / (N + 1),   w_ii = 1 / (N + 1)

    with the similarities c, so that a row sums to one; where all are zero, neighbors
    count alike. A strength multiplies its c, and counts in N as so much of a neighbor;
    that of a self-loop multiplies w_ii. So a strength of zero is no edge.
    """
    loop = pattern.row_of_entry == pattern.column_of_entry
    present = strength.masked_fill(loop | ~kept, 0)
    number = row_sum(pattern, present)
    total = row_sum(pattern, present * similarity)
    # Where there is nothing to compare with, the first edge would be like the mean.
    none = total == 0
    mean = total.masked_fill(none, 1) / number.masked_fill(none, 1)
    relative = similarity / row_expand(pattern, mean)
    relative = relative.masked_fill(none[pattern.row_of_entry], 1)
    weights = torch.where(loop, strength, present * relative)
    return weights * row_expand(pattern, 1 / (number + 1))


def neighbor_cosine(pattern: Pattern, h: Features) -> Tensor:
    """Cosines of both ends of each entry, ``[entries]``; 0 where a row is zero.

    They are differentiable where ``h`` is dense. Of sparse features with more than 256
    entries in a row that many are compared.
    """
    unit = unit_rows(h)
    if isinstance(unit, Tensor):
        return sddmm(pattern, unit, unit)
    return row_overlap(unit, pattern.row_of_entry, pattern.column_of_entry)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GNNGuardNet(SizedBackbone):
    """A GCN whose propagation is made anew in each layer from what the layer reads.

    Args:
        threshold: Neighbors of a smaller cosine do not count, in this layer and those
            that follow.
        memory: Mix the weights of the layer before into those of a layer, by a gate
            that is learned. The paper has it; in the released code it is switched off.
    """

    sums_messages = False
    threshold: float = 0.1
    memory: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, threshold=self.threshold)
        self.layers = nn.ModuleList(GCNLayer(*size) for size in self.sizes())
        # Of a layer alone there is nothing to remember.
        remembers = self.memory and self.num_layers > 1
        self.gate = nn.Parameter(torch.zeros(1)) if remembers else None

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        h, before = features, None
        kept = torch.ones(pattern.num_entries, dtype=torch.bool, device=pattern.device)
        for number, layer in enumerate(self.layers):
            strength = strength_at(strengths, number, h)
            similarity = neighbor_cosine(pattern, h)
            # What was no neighbor is none later: hidden layers are all rather similar.
            kept = kept & (similarity >= self.threshold)
            weights = guarded_weights(pattern, strength, similarity, kept)
            if self.gate is not None and before is not None:
                share = self.gate.sigmoid()
                weights = share * before + (1 - share) * weights
            before = weights
            # The authors drop nothing of the features.
            h = dropout(h, self.dropout, noise, 2 * number) if number else h
            h = layer(h, pattern, weights, noise)
            h = torch.relu(h) if number < self.num_layers - 1 else h
        assert isinstance(h, Tensor)
        return h


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GNNGuard(EpochClassifier):
    """A GCN that trusts similar neighbors (Zhang and Zitnik, NeurIPS 2020).

    Before each layer the cosine of what both ends of an edge have become says how much
    it counts, and whether at all. A network of its own; ``backbone_options`` are those
    of :class:`GNNGuardNet`. The weights are the paper's; the released code takes their
    exponentials and normalises again, after which all kept edges count nearly alike,
    and prunes by a learned decision that never gets a gradient. Here, gradients go
    through the similarities.

    Args:
        backbone: ``"gnnguard"``.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gnnguard",)

    backbone: str | type | nn.Module = field(default="gnnguard", kw_only=False)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        return train_on_fixed_structure(data, runs, self.network(), self.schedule())
