"""Attention in each relation and over relations (after Wang et al., WWW 2019)."""

from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from gsebo.nn.base import (
    Features,
    LayerStrengths,
    Linear,
    glorot,
    require_counts,
    strength_at,
)
from gsebo.nn.gat import attend
from gsebo.nn.relational import RelationalBackbone, by_relation, relation_of_entry
from gsebo.sparse import Noise, Pattern, dropout

_SLOPE = 0.2
# Randomness of one layer: of its input, and of the attention of each relation.
_SITES = 100


@final
@dataclass(kw_only=True, eq=False, repr=False)
class HAN(RelationalBackbone):
    """Heterogeneous attention: over neighbors in each relation, then over relations.

        z_i^r = Σ_j softmax_j(LeakyReLU(a_r · [m_i, m_j])) s_ij m_j,    m = h W,
        h_i <- elu(s_ii h_i W_0 + Σ_r β_r z_i^r + b),
        β = softmax over the relations into one type of the mean over its nodes of
            q · tanh(z_i^r W_q + b_q)

    Relations take the place of the meta-paths of the paper, and a node hears of itself
    by a map of its own. Strengths, at first one, weigh the messages.

    Args:
        heads: How many attentions look at each relation, each with a share of the
            hidden channels.
        relation_channels: Width in which relations are compared.
    """

    heads: int = 4
    relation_channels: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(heads=self.heads, relation_channels=self.relation_channels)
        # Every layer is a hidden one, of whole heads; classes are read from the last.
        self.width = -(-self.hidden_channels // self.heads) * self.heads
        before = [self.in_channels, *[self.width] * (self.num_layers - 1)]
        self.maps = nn.ParameterList(glorot(size, self.width) for size in before)
        self.self_weights = nn.ParameterList(
            glorot(size, self.width) for size in before
        )
        self.biases = nn.ParameterList(torch.zeros(self.width) for _ in before)
        self.attentions = nn.ParameterList()
        self.compared = nn.ModuleList(
            Linear(self.width, self.relation_channels) for _ in before
        )
        self.queries = nn.ParameterList(
            glorot(self.relation_channels, 1) for _ in before
        )
        self.classifier = Linear(self.width, self.out_channels)

    def waiting(self, relations: int) -> list[tuple[nn.ParameterList, tuple[int, ...]]]:
        shape = (relations, self.heads, self.width // self.heads, 2)
        return [(self.attentions, shape)] * self.num_layers

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        parts = self.relations(pattern)
        loops = (relation_of_entry(pattern) == len(parts)).nonzero().squeeze(-1)
        h: Features = features
        for number, weight in enumerate(self.maps):
            strength = strength_at(strengths, number, h)
            h = dropout(h, self.dropout, noise, _SITES * number)
            both = h @ torch.cat([self.self_weights[number], weight], dim=1)
            own, message = both[:, : self.width], both[:, self.width :]
            found = [
                attend(
                    part.pattern,
                    strength.index_select(-1, part.entries),
                    message,
                    self.attentions[number][place],
                    slope=_SLOPE,
                    rate=self.dropout,
                    noise=noise,
                    site=_SITES * number + 1 + place,
                    sources=part.sources,
                )
                for place, part in enumerate(parts)
            ]
            out = own * strength.index_select(-1, loops).unsqueeze(-1)
            shares = self._shares(number, found, pattern)
            for share, each in zip(shares, found, strict=True):
                out = out + share * each
            h = elu(out + self.biases[number])
        h = dropout(h, self.dropout, noise, _SITES * self.num_layers)
        return cast(Tensor, self.classifier(h))

    def _shares(
        self, number: int, found: list[Tensor], pattern: Pattern
    ) -> list[Tensor]:
        """How much each relation counts among those into the same type of nodes."""
        compared, query = self.compared[number], self.queries[number]
        targets = [part.target for part in by_relation(pattern)]
        scores = []
        for each, target in zip(found, targets, strict=True):
            if pattern.types is not None:
                each = each[pattern.types.node_type == target]
            said = torch.tanh(compared(each)) @ query
            # Of a type without nodes there would be no mean.
            scores.append(said.sum() / max(len(said), 1))
        shares = list(scores)
        for target in set(targets):
            places = [place for place, one in enumerate(targets) if one == target]
            among = torch.stack([scores[place] for place in places]).softmax(0)
            for place, share in zip(places, among.unbind(), strict=True):
                shares[place] = share
        return shares
