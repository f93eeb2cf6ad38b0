"""Whether edges far from labels look like those near them.

What labels teach of edges holds where edges are alike. If somebody has added edges at
nodes whose labels are not known, more edges there look as if drawn by chance. Pairs
that really were drawn by chance tell how that looks: with q the likelihood that a pair
was drawn, and u the share of its ends that are not labelled,

    mean of q at u = a + b u,      excess = b / (mean of q of drawn pairs - a)

is the share of edges between unlabelled nodes that are false beyond those between
labelled ones. No label of a held-back node is read, and features are not touched by
those who add edges.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import Pattern
from gsebo.structure.evidence import (
    Features,
    FeatureWeights,
    WholeGraphEdges,
    evidence_of,
)

Numbers = NDArray[np.float64]

# Of a large graph so many edges tell enough, as many as are drawn beside them.
_MOST = 2**16
# Draws for each pair that is wanted, because some join a class or an edge.
_DRAWS = 6
# Standard errors that are taken off before an excess counts.
_SURE = 2.0
# Agreement of predictions below it says nothing more.
_LEAST = 1e-3


@final
class Shift(NamedTuple):
    """How much more often edges far from labels look false, and its standard error."""

    excess: float = 0.0
    error: float = math.inf

    @property
    def sure(self) -> float:
        """The excess that is there beyond doubt: two standard errors less."""
        return max(self.excess - _SURE * self.error, 0.0)


@torch.no_grad()
def edge_shift(
    graph: CanonicalGraph,
    features: Features,
    predicted: Tensor,
    classes: Tensor,
    labelled: Tensor,
    seed: int,
) -> Shift:
    """Compare edges by how many of their ends are labelled.

    Where there is nothing to compare, the error is infinite.

    Args:
        graph: The edges.
        features: Of the nodes.
        predicted: What features alone say of each node, by networks that did not learn
            from its own label, ``[nodes, classes]``.
        classes: Class of each node, predicted or known, ``[nodes]``.
        labelled: Which nodes are labelled, bool ``[nodes]``.
        seed: Decides which pairs are drawn.
    """
    generator = torch.Generator().manual_seed(seed % 2**63)
    given = _pairs(graph, generator)
    drawn = _drawn(given, classes.cpu(), graph.num_nodes, generator)
    if min(given.shape[1], drawn.shape[1]) < 2:
        return Shift()
    columns = _columns(torch.cat([given, drawn], dim=1), features, predicted)
    kind = np.repeat([0, 1], [given.shape[1], drawn.shape[1]])
    likelihood = _likelihood(columns, kind)
    ends = (~labelled.cpu()[given]).double().mean(0).numpy()
    return _regressed(ends, likelihood[kind == 0], float(likelihood[kind == 1].mean()))


def _pairs(graph: CanonicalGraph, generator: torch.Generator) -> Tensor:
    """Joined pairs, the smaller number first, each once, ``[2, pairs]``."""
    ordered = graph.edge_index.cpu().sort(dim=0).values
    keys = torch.unique(ordered[0] * graph.num_nodes + ordered[1])
    if len(keys) > _MOST:
        keys = keys[torch.randperm(len(keys), generator=generator)[:_MOST]]
    return torch.stack([keys // graph.num_nodes, keys % graph.num_nodes])


def _drawn(
    given: Tensor, classes: Tensor, num_nodes: int, generator: torch.Generator
) -> Tensor:
    """Pairs of different classes, at nodes of any degree as often as given ones."""
    ends, count = given.flatten(), given.shape[1]
    if not count:
        return given
    places = torch.randint(len(ends), (2, _DRAWS * count), generator=generator)
    drawn = ends[places].sort(dim=0).values
    drawn = drawn[:, classes[drawn[0]] != classes[drawn[1]]]
    keys, taken = drawn[0] * num_nodes + drawn[1], given[0] * num_nodes + given[1]
    new = torch.unique(keys[~torch.isin(keys, taken)])
    new = new[torch.randperm(len(new), generator=generator)[:count]]
    return torch.stack([new // num_nodes, new % num_nodes])


def _columns(pairs: Tensor, features: Features, predicted: Tensor) -> Numbers:
    """Similarity of features and agreement of predictions, standardised."""
    source, target = pairs.to(features.device)
    edges = WholeGraphEdges(
        features,
        FeatureWeights.of(features),
        source,
        target,
        given=Pattern.from_positions(target, source, features.shape[0]),
    )
    alike = evidence_of(edges, ("cosine", "rarity"))
    agree = (predicted[source] * predicted[target]).sum(-1, keepdim=True)
    found = torch.cat([alike, agree.clamp(min=_LEAST).log().to(alike)], dim=-1)
    columns: Numbers = found.double().cpu().numpy()
    spread = columns.std(0)
    scaled: Numbers = (columns - columns.mean(0)) / np.where(spread > 1e-9, spread, 1)
    return scaled


def _likelihood(columns: Numbers, kind: Numbers) -> Numbers:
    # Fits that notice no shift should not wait for it to be imported.
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced").fit(columns, kind)
    found: Numbers = model.predict_proba(columns)[:, 1]
    return found


def _regressed(ends: Numbers, likelihood: Numbers, of_drawn: float) -> Shift:
    """Least squares, with an error that holds for any spread of the likelihoods."""
    centred = ends - ends.mean()
    total = float(centred @ centred)
    if total == 0:
        return Shift()
    slope = float(centred @ likelihood) / total
    level = float(likelihood.mean()) - slope * float(ends.mean())
    left = likelihood - level - slope * ends
    error = math.sqrt(float((centred * left) @ (centred * left))) / total
    gap = of_drawn - level
    # Where drawn pairs look like those between labelled nodes, nothing can be told.
    return Shift(slope / gap, error / gap) if gap > 2 * error else Shift()
