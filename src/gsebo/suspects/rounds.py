"""One round: false edges are planted, everything is judged, and they are taken out.

Whatever looks at a given edge looks at a planted one in the same way: both lie in the
graph while features are compared, neighbors counted and networks trained, so that a
network which was led astray by an edge was led astray by planted ones as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.suspects.networks import GraphNetworks, Probabilities, log_agreement
from gsebo.suspects.pairs import (
    Ints,
    JoinedPairs,
    NodeFeatures,
    Numbers,
    keys_of_ends,
)
from gsebo.suspects.scoring import crossed_scores

# Of the given edges: more would change the graph that is judged, fewer teach less.
_SHARE = 0.1
_FEWEST, _MOST = 100, 50_000
# Draws for each pair that is wanted before one gives up.
_PATIENCE = 50


def plant(
    pairs: Ints,
    num_nodes: int,
    count: int,
    rng: np.random.Generator,
    apart: Ints | None = None,
    kind: Ints | None = None,
) -> Ints:
    """Draw pairs that are not joined, ``[count, 2]``.

    The ends of given edges are shuffled, so that planted edges are at nodes of any
    degree as often as given ones are, and the degree says nothing. Nodes of several
    types are joined as often as given edges join those.

    Args:
        pairs: The given ones, ``[pairs, 2]``.
        num_nodes: Number of nodes.
        count: How many to draw.
        rng: Decides everything.
        apart: Class of each node by what is known and predicted, ``[nodes]``; both ends
            are then of different ones. An edge within a class is rarely called wrong.
        kind: Type of each node, where there are several, ``[nodes]``.

    Raises:
        InvalidInput: The graph is so dense that there are not enough such pairs.
    """
    taken = keys_of_ends(pairs, num_nodes)
    draw = _ShuffledEnds(pairs, kind)
    found = np.empty((0, 2), np.int64)
    for _ in range(_PATIENCE):
        drawn = draw(2 * count, rng)
        fits = drawn[:, 0] != drawn[:, 1]
        if apart is not None:
            fits &= apart[drawn[:, 0]] != apart[drawn[:, 1]]
        drawn = np.sort(drawn[fits], axis=1)
        keys = keys_of_ends(drawn, num_nodes)
        _, first = np.unique(keys, return_index=True)
        new = first[~np.isin(keys[first], taken)]
        # In the order of the draw: np.unique has sorted them by their nodes.
        new.sort()
        found = np.concatenate([found, drawn[new]])[:count]
        taken = np.concatenate([taken, keys[new]])
        if len(found) == count:
            return found
    raise InvalidInput(
        f"only {len(found)} of {count} false edges could be drawn among "
        f"{num_nodes} nodes with {len(pairs)} edges; expected a graph that leaves more "
        "pairs of nodes unjoined."
    )


@final
class _ShuffledEnds:
    """Draws one end of one given pair and one of another that joins the same types."""

    def __init__(self, pairs: Ints, kind: Ints | None) -> None:
        self._pairs, self._alike = pairs, np.ones(len(pairs), bool)
        joins = np.zeros(len(pairs), np.int64)
        if kind is not None:
            ends = kind[pairs]
            # The end of the type with the smaller number first.
            self._pairs = np.take_along_axis(pairs, ends.argsort(1, kind="stable"), 1)
            self._alike = ends[:, 0] == ends[:, 1]
            joins = ends.min(1) * (int(kind.max()) + 1) + ends.max(1)
        _, self._group, self._sizes = np.unique(
            joins, return_inverse=True, return_counts=True
        )
        self._order = self._group.argsort(kind="stable")
        self._starts = self._sizes.cumsum() - self._sizes

    def __call__(self, count: int, rng: np.random.Generator) -> Ints:
        """So many pairs, ``[count, 2]``; some may be joined, or one node twice."""
        if self._alike.all() and len(self._sizes) == 1:
            ends = self._pairs.ravel()
            return np.stack([rng.choice(ends, count), rng.choice(ends, count)], 1)
        one = rng.integers(len(self._pairs), size=count)
        group = self._group[one]
        other = self._order[self._starts[group] + rng.integers(self._sizes[group])]
        # Where both ends are of one type, either may be taken of both.
        either = rng.integers(2, size=(2, count)) * self._alike[one]
        place = either[0], np.where(self._alike[one], either[1], 1)
        return np.stack([self._pairs[one, place[0]], self._pairs[other, place[1]]], 1)


@final
@dataclass(frozen=True, eq=False)
class Round:
    """What was found of all given pairs, and of the planted ones.

    Attributes:
        given: Score of each given pair, ``[pairs]``; high is suspicious.
        planted: Of each planted pair, ``[planted]``.
        evidence: What was told of each given pair, by name, ``[pairs]``.
        parts: What each of that added to its score.
        predicted: What a network says of each node's class, where there are labels.
    """

    given: Numbers
    planted: Numbers
    evidence: dict[str, Numbers]
    parts: dict[str, Numbers]
    predicted: Probabilities | None


@final
class PlantedRounds:
    """Rounds on one graph, which differ by their seeds alone.

    Args:
        pairs: The given pairs, ``[pairs, 2]``.
        weights: What each weighs, ``[pairs]``; ``None``: all weigh one.
        networks: On the nodes of the graph.
        features: Of the nodes, if there are any.
        seed: Decides everything that is drawn.
        node_type: Of each node, where there are several, ``[nodes]``.
    """

    def __init__(
        self,
        pairs: Ints,
        weights: Numbers | None,
        networks: GraphNetworks,
        features: NodeFeatures | None,
        seed: int,
        node_type: Ints | None = None,
    ) -> None:
        self._pairs, self._weights, self._node_type = pairs, weights, node_type
        self._networks, self._features, self._seed = networks, features, seed
        self._num_nodes = len(networks.known)
        wanted = round(_SHARE * len(pairs))
        fewest = min(_FEWEST, len(pairs) // 2)
        self._count = max(min(wanted, _MOST), fewest, 1)

    @cached_property
    def _classes(self) -> Ints | None:
        """Class of each node by what a first look at the graph says, with labels."""
        if not self._networks.has_labels:
            return None
        rng = np.random.default_rng([self._seed, 0])
        drawn = self._planted(rng)
        _, weights, _ = self._first_look(drawn, rng)
        seed = int(rng.integers(2**31))
        given = weights[: len(self._pairs)]
        predicted = self._networks.on_graph(self._pairs, given, seed)
        return self._networks.name_of(predicted)

    def _planted(self, rng: np.random.Generator, apart: Ints | None = None) -> Ints:
        nodes, kind = self._num_nodes, self._node_type
        return plant(self._pairs, nodes, self._count, rng, apart, kind)

    def run(self, number: int) -> Round:
        """Make one round, counted from 1."""
        rng = np.random.default_rng([self._seed, number])
        drawn = self._planted(rng, self._classes)
        evidence, weights, own = self._first_look(drawn, rng)
        pairs, predicted = np.concatenate([self._pairs, drawn]), None
        if self._networks.has_labels:
            seed = int(rng.integers(2**31))
            predicted = self._networks.on_graph(pairs, weights, seed)
            evidence["agreement"] = log_agreement(predicted, pairs)
            if self._networks.learns_weights:
                seed = int(rng.integers(2**31))
                learned = self._networks.learned_weights(pairs, own, seed)
                evidence["learned_weight"] = learned
        scores, parts = crossed_scores(evidence, self._is_planted(drawn), rng)
        count = len(self._pairs)
        return Round(
            scores[:count],
            scores[count:],
            {name: column[:count] for name, column in evidence.items()},
            {name: column[:count] for name, column in parts.items()},
            predicted,
        )

    def _first_look(
        self, drawn: Ints, rng: np.random.Generator
    ) -> tuple[dict[str, Numbers], Numbers, Numbers | None]:
        """What is told without knowing the graph's classes, and weights by that.

        Also what pairs weigh by themselves: planted ones as any given one.
        """
        pairs = np.concatenate([self._pairs, drawn])
        joined = JoinedPairs(pairs, self._num_nodes, self._features)
        evidence = joined.evidence(pairs, joined=True)
        networks = self._networks
        if networks.has_labels and networks.has_features:
            predicted = networks.features_only(int(rng.integers(2**31)))
            evidence["features_agreement"] = log_agreement(predicted, pairs)
        scores, _ = crossed_scores(evidence, self._is_planted(drawn), rng)
        weights, own = 1 / (1 + np.exp(scores)), None
        if self._weights is not None:
            own = np.append(self._weights, rng.choice(self._weights, len(drawn)))
            weights = weights * own
        return evidence, weights, own

    def _is_planted(self, drawn: Ints) -> Numbers:
        return np.repeat([0.0, 1.0], [len(self._pairs), len(drawn)])
