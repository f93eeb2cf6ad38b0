"""What can be told of an edge before anything is learned.

For an edge from j to i, with the degrees d of the given graph,

    cosine      of the features x_i and x_j
    rarity      cosine of the same with rare features weighed more
    d_i, d_j    logarithms of the degrees
    common      logarithm of the number of common neighbours
    allocation  sum of 1 / d_k over the common neighbours k

Random false edges rarely close a triangle, and join texts that share only common words.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse import Pattern, SparseFeatures, row_sum, sddmm
from gsebo.sparse.overlap import row_overlap
from gsebo.sparse.unit_rows import unit_rows

EVIDENCE = (
    "cosine",
    "rarity",
    "target_degree",
    "source_degree",
    "common",
    "allocation",
)
"""Names of the columns of evidence."""

Features = Tensor | SparseFeatures


@final
class FeatureWeights(NamedTuple):
    """How much each feature says about a node that has it.

    Attributes:
        centre: Taken from every feature first; empty where only counts whether a
            feature is there.
        scale: Factor of every feature: large for rare ones.
    """

    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, features: Features) -> FeatureWeights:
        """Weigh sparse features by their rarity, dense ones by their spread."""
        if isinstance(features, Tensor):
            centre, spread = features.mean(0), features.std(0, correction=0)
            # Of a constant feature, rounding may leave a little.
            varies = spread > 1e-5 * centre.abs()
            scale = torch.where(varies, spread, torch.inf).reciprocal()
            return cls(centre, scale)
        pattern = features.pattern
        present = (features.values != 0).to(features.dtype)
        nodes = row_sum(pattern.T, present)
        scale = torch.log((pattern.num_rows + 1) / (nodes + 1))
        return cls(scale.new_empty(0), scale)

    def weigh(self, features: Features) -> Features:
        """The weighed features, in the way of the graph that the weights are of.

        Another graph may have so many zeros, or so few, that its features come in the
        other form.
        """
        if self.centre.numel() > 0:
            if not isinstance(features, Tensor):
                features = features.to_dense()
            return (features - self.centre) * self.scale
        if isinstance(features, Tensor):
            return (features != 0) * self.scale
        weighed = (features.values != 0) * self.scale[features.pattern.column_of_entry]
        return SparseFeatures(features.pattern, weighed)


@torch.no_grad()
def edge_evidence(
    edges: Pattern, given: Pattern, features: Features, weights: FeatureWeights
) -> Tensor:
    """Evidence of every entry, not yet scaled, ``[entries, columns]``.

    Args:
        edges: The entries that are asked about, rows = targets.
        given: Edges of the user's graph, without self-loops.
        features: Of the nodes.
        weights: Of the features.
    """
    target, source = edges.row_of_entry, edges.column_of_entry
    dtype = features.dtype
    degree = given.row_counts.to(dtype)
    logarithm = degree.log1p()
    ones = torch.ones(given.num_entries, dtype=dtype, device=given.device)
    # In a directed graph, those who send to both ends are common neighbours.
    share = degree.clamp(min=1).rsqrt()[given.column_of_entry]
    columns = [
        entry_products(unit_rows(features), edges),
        entry_products(unit_rows(weights.weigh(features)), edges),
        logarithm[target],
        logarithm[source],
        row_overlap(SparseFeatures(given, ones), target, source).log1p(),
        row_overlap(SparseFeatures(given, share), target, source),
    ]
    return torch.stack(columns, dim=-1)


def entry_products(features: Features, edges: Pattern) -> Tensor:
    """Product of the features at both ends of every entry, ``[entries]``."""
    if isinstance(features, Tensor):
        return sddmm(edges, features, features)
    return row_overlap(features, edges.row_of_entry, edges.column_of_entry)


def evidence_columns(names: str) -> tuple[str, ...]:
    """Read which columns of evidence are used.

    >>> evidence_columns("cosine, common")
    ('cosine', 'common')
    """
    if names == "all":
        return EVIDENCE
    # What is not text is no name, whatever it looks like.
    given = names.split(",") if isinstance(names, str) else [repr(names)]
    chosen = tuple(name.strip() for name in given if name.strip())
    unknown = [name for name in chosen if name not in EVIDENCE]
    if unknown or len(set(chosen)) != len(chosen):
        raise InvalidInput(
            f"evidence={names!r} given; expected 'all' or some of: "
            f"{', '.join(EVIDENCE)}, separated by commas."
        )
    return chosen
