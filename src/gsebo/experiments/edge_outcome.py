"""What a fit did to edges within classes, between classes, and to false ones."""

from typing import Annotated, Literal, TypedDict

import torch
from msgspec import Meta
from torch import Tensor

from gsebo.methods import GraphClassifier
from gsebo.schema import Count, Size

BINS = tuple(number / 10 for number in range(21))
"""Edges of the bars of strength / start; a last bar has all that is above."""


GroupName = Literal["within", "between", "false"]


class GroupOutcome(TypedDict):
    """What became of a group of edges.

    Attributes:
        count: How many they are.
        mean: Of strength / start, over those that had any at the start.
        zero: How many have no strength left.
        histogram: How many of those that had any are in each of the bars.
    """

    count: Count
    mean: Annotated[float, Meta(ge=0, le=1e15)] | None
    zero: Size
    histogram: Annotated[list[Size], Meta(min_length=21, max_length=21)]


EdgeGroups = dict[GroupName, GroupOutcome]
"""The groups of one layer; one without any edge is left out."""


def edge_outcome(model: GraphClassifier, added: int) -> list[EdgeGroups] | None:
    """Summarise strength / start by group; ``None`` where no structure was learned.

    All labels are read: this describes a fit after its end.

    Args:
        model: A fitted estimator.
        added: How many edges noise has added, in both directions, at the end of the
            graph's edges.

    Returns:
        For each layer, or once if all share the strengths, the groups ``within``,
        ``between`` (two classes, added edges apart) and ``false``.
    """
    if not model.model_.learned:
        return None
    edges, labels = model.graph_.edge_index.cpu(), model.graph_.y.cpu()
    first, second = labels[edges[0]], labels[edges[1]]
    known = (first >= 0) & (second >= 0) & (edges[0] != edges[1])
    false = torch.arange(edges.shape[1]) >= edges.shape[1] - 2 * added
    groups: dict[GroupName, Tensor] = {
        "within": known & ~false & (first == second),
        "between": known & ~false & (first != second),
        "false": known & false,
    }
    start = model.initial_strength_.double()
    return [
        {
            name: _group(row.double()[members], start[members])
            for name, members in groups.items()
            if bool(members.any())
        }
        for row in model.strength_.reshape(-1, edges.shape[1])
    ]


def _group(strength: Tensor, start: Tensor) -> GroupOutcome:
    some = start > 0
    ratio = strength[some] / start[some]
    bars = torch.bucketize(ratio, torch.tensor(BINS, dtype=torch.float64), right=True)
    # Ratios are never negative, so that none lies before the first of the bins.
    histogram = torch.bincount(bars - 1, minlength=len(BINS)).tolist()
    return {
        "count": int(strength.numel()),
        "mean": round(float(ratio.mean()), 6) if ratio.numel() else None,
        "zero": int((strength <= 0).sum()),
        "histogram": histogram,
    }
