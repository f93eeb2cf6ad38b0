"""Multi-hop attention network (Wang et al., IJCAI 2021) with edge strengths."""

from numbers import Real
from typing import Any, final

import torch
from torch import Tensor, nn

from gsebo.backbone.base import (
    Backbone,
    Features,
    LayerStrengths,
    glorot,
    require_counts,
)
from gsebo.backbone.diffusion import DiffusionAttention, dropped_pairs
from gsebo.backbone.layer_norm import DeviationNorm
from gsebo.errors import InvalidInput
from gsebo.sparse import Noise, Pattern, SparseFeatures, dropout

_EXPANSION = 4
# Its sites depend on the number of hops, so that they begin above all others.
_FIRST_SITE = 1_000_000


@final
class FeedForward(nn.Module):
    """Two linear layers with a wider one in between."""

    def __init__(self, channels: int, *, dropout: float) -> None:
        super().__init__()
        wide = _EXPANSION * channels
        self.first, self.second = glorot(channels, wide), glorot(wide, channels)
        self.first_bias = nn.Parameter(torch.zeros(wide))
        self.second_bias = nn.Parameter(torch.zeros(channels))
        self.dropout = dropout

    def forward(self, h: Tensor, noise: Noise | None, site: int) -> Tensor:
        """Return ``[nodes, channels]``."""
        wide = torch.relu(h @ self.first + self.first_bias)
        return dropout(wide, self.dropout, noise, site) @ self.second + self.second_bias


@final
class MAGNABlock(nn.Module):
    """Diffused attention and a feed-forward network, each with a way around it.

        r = residual(h) + dropout(attention(norm(h) W) W_o),
        y = r + dropout(feed_forward(norm(r)))

    The first way is a linear map where the widths differ.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        number: int,
        dropout: float,
        feed_forward_dropout: float,
        hops: int,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.input_norm = DeviationNorm(in_channels)
        self.weight = glorot(in_channels, channels)
        self.attention = DiffusionAttention(
            channels, dropout=dropout, hops=hops, **attention
        )
        self.output = glorot(channels, channels)
        same = in_channels == channels
        self.residual = None if same else glorot(in_channels, channels)
        self.norm = DeviationNorm(channels)
        self.feed_forward = FeedForward(channels, dropout=feed_forward_dropout)
        self.dropout = dropout
        self.site = _FIRST_SITE + 1 + number * (2 * hops + 3)

    def forward(
        self,
        h: Features,
        pattern: Pattern,
        strength: Tensor,
        dropped: Tensor | None,
        noise: Noise | None,
    ) -> Tensor:
        """Return ``[nodes, channels]``."""
        message = self.input_norm.times(h, self.weight)
        own = self.site
        mixed: Tensor = self.attention(
            message, pattern, strength, dropped, noise, own + 3
        )
        mixed = dropout(mixed @ self.output, self.dropout, noise, own)
        r = mixed + self._around(h)
        deep: Tensor = self.feed_forward(self.norm(r), noise, own + 1)
        return r + dropout(deep, self.dropout, noise, own + 2)

    def _around(self, h: Features) -> Tensor:
        if self.residual is not None:
            return h @ self.residual
        return h.to_dense() if isinstance(h, SparseFeatures) else h


@final
class MAGNANet(Backbone):
    """MAGNA: blocks of diffused attention and a linear read-out.

    One block is one propagation: its strengths multiply the attention, at every hop.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of each block, a multiple of ``heads``.
        out_channels: Number of classes.
        num_layers: Number of blocks.
        dropout: Rate of dropout on what each hop, attention and feed-forward network
            gives.
        heads: Number of heads.
        hops: Steps of the diffusion of each block.
        teleport: How much of a block's messages returns at each hop (alpha).
        top_k: Entries of each node and head that get attention.
        attention_dropout: Rate of dropout on the attention, drawn anew at each hop.
        edge_dropout: Probability of a pair of neighbours to be left out of a training
            step; half of the published 0.1, which the authors' code halves.
        feed_forward_dropout: Rate of dropout inside of the feed-forward networks.
    """

    sums_messages = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.25,
        heads: int = 8,
        hops: int = 4,
        teleport: float = 0.15,
        top_k: int = 5,
        attention_dropout: float = 0.5,
        edge_dropout: float = 0.05,
        feed_forward_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        require_counts(heads=heads, hops=hops, top_k=top_k)
        _require_shares(
            teleport=teleport,
            attention_dropout=attention_dropout,
            edge_dropout=edge_dropout,
            feed_forward_dropout=feed_forward_dropout,
        )
        if hidden_channels % heads:
            raise InvalidInput(
                f"hidden_channels={hidden_channels} given with heads={heads}; expected "
                "a multiple of the heads."
            )
        self.blocks = nn.ModuleList(
            MAGNABlock(
                in_channels if number == 0 else hidden_channels,
                hidden_channels,
                number=number,
                dropout=dropout,
                feed_forward_dropout=feed_forward_dropout,
                heads=heads,
                hops=hops,
                teleport=teleport,
                top_k=top_k,
                attention_dropout=attention_dropout,
            )
            for number in range(num_layers)
        )
        self.weight = glorot(hidden_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.edge_dropout = edge_dropout
        self.num_propagations = num_layers

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Return the logits, ``[nodes, classes]``."""
        if strengths is None:
            strengths = self.initial_strength(pattern)
        dropped = dropped_pairs(
            pattern, self.edge_dropout, noise, _FIRST_SITE, self.weight
        )
        h = features
        for number, block in enumerate(self.blocks):
            if callable(strengths):
                strength = strengths(number, h)
            else:
                strength = strengths if strengths.dim() == 1 else strengths[number]
            h = block(h, pattern, strength, dropped, noise)
        logits: Tensor = h @ self.weight + self.bias
        return logits

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """One: attention as it is."""
        return torch.ones(
            pattern.num_entries, dtype=self.weight.dtype, device=pattern.device
        )

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """The weights: attention does the rest."""
        return weights


def _require_shares(**options: Any) -> None:
    for name, value in options.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected 0 <= {name} < 1.")
