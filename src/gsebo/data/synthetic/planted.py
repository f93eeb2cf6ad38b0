"""Labelled random graphs of any size, with power-law degrees and a set homophily."""

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray

from gsebo.data.seeding import (
    require,
    seeded_generator,
    sorted_distinct,
    undirected,
)
from gsebo.data.splits import apply_split
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WEIGHTED_ROUNDS = 20
_FULLEST = 0.9


def generate_graph(
    num_nodes: int,
    *,
    num_classes: int = 2,
    average_degree: float = 10.0,
    power_law_exponent: float = 2.5,
    homophily: float = 0.8,
    num_features: int = 16,
    feature_signal: float = 1.0,
    seed: int = 0,
    split: str = "random",
) -> Graph:
    """Draw a labelled, undirected graph (both directions of each edge are stored).

    An endpoint of an edge is drawn in proportion to its node's weight, the weights
    follow a power law (Chung and Lu, 2002), and the other endpoint is drawn from the
    same class for a share ``homophily`` of the edges and from other classes otherwise.
    Features are ``feature_signal`` times the mean of the class plus standard noise.

    Args:
        num_nodes: Number of nodes.
        num_classes: Number of classes, all of the same size up to one node.
        average_degree: Mean number of neighbors.
        power_law_exponent: Exponent of the distribution of the weights, above 2.
        homophily: Share of the edges that join nodes of one class.
        num_features: Number of features.
        feature_signal: Distance of the class means, in units of the noise.
        seed: The same arguments and seed give the same graph.
        split: Name of a split, as for `apply_split`.
    """
    exponent = power_law_exponent
    enough = f"at least two for each of {num_classes} classes"
    below = f"more than 0 and fewer than the {num_nodes} nodes"
    require(num_classes >= 2, f"{num_classes=!s}", "at least 2")
    require(num_nodes >= 2 * num_classes, f"{num_nodes=!s}", enough)
    require(num_features >= 1, f"{num_features=!s}", "at least 1")
    require(0 < average_degree < num_nodes, f"{average_degree=!s}", below)
    require(2 < exponent < math.inf, f"{power_law_exponent=!s}", "more than 2")
    require(0 <= homophily <= 1, f"{homophily=!s}", "a share from 0 to 1")
    require(0 <= feature_signal < math.inf, f"{feature_signal=!s}", "0 or more")
    generator = seeded_generator(seed)
    labels = generator.permutation(np.arange(num_nodes) % num_classes)
    weights = _power_law(num_nodes, exponent, average_degree, generator)
    num_edges = round(num_nodes * average_degree / 2)
    num_same = round(num_edges * homophily)
    endpoints = _Endpoints(labels, weights)
    edges = [
        _draw_edges(endpoints, num_same, True, generator),
        _draw_edges(endpoints, num_edges - num_same, False, generator),
    ]
    means = generator.standard_normal((num_classes, num_features), dtype=np.float32)
    x = generator.standard_normal((num_nodes, num_features), dtype=np.float32)
    x += np.float32(feature_signal) * means[labels]
    graph = Graph(
        x=torch.from_numpy(x),
        edge_index=undirected(*divmod(np.concatenate(edges), num_nodes), num_nodes),
        y=torch.from_numpy(labels),
    )
    return apply_split(graph, split, seed)


class _Endpoints:
    """Draws nodes in proportion to their weights, within or outside a class."""

    def __init__(self, labels: Ints, weights: Floats) -> None:
        sizes = np.bincount(labels)
        self.num_nodes = len(labels)
        self.by_class = np.argsort(labels, kind="stable")
        self.class_of = labels[self.by_class]
        self.ends = np.concatenate([[0], np.cumsum(sizes)])
        self.use(weights[self.by_class])
        same = int((sizes * (sizes - 1) // 2).sum())
        every = self.num_nodes * (self.num_nodes - 1) // 2
        self.num_pairs = {True: same, False: every - same}

    def use(self, weights: Floats) -> None:
        """Take these weights, in the order of ``by_class``, from now on."""
        self.up_to = np.concatenate([[0.0], np.cumsum(weights)])

    def pairs(self, count: int, same: bool, generator: np.random.Generator) -> Ints:
        """Return the distinct pairs, as keys, among ``count`` draws of two nodes."""
        # Sorted, they are found many times faster; the order of pairs is of no matter.
        first = self._find(np.sort(generator.random(count)) * self.up_to[-1])
        group = self.class_of[first]
        low, high = self.up_to[self.ends[group]], self.up_to[self.ends[group + 1]]
        if same:
            place = low + generator.random(count) * (high - low)
            second = self._find(place)
            # Rounding may step over the edge of the class.
            second = np.clip(second, self.ends[group], self.ends[group + 1] - 1)
        else:
            place = generator.random(count) * (self.up_to[-1] - (high - low))
            second = self._find(place + np.where(place >= low, high - low, 0.0))
        kept = (first != second) & ((group == self.class_of[second]) == same)
        ends = self.by_class[first[kept]], self.by_class[second[kept]]
        keys = np.minimum(*ends) * self.num_nodes + np.maximum(*ends)
        return sorted_distinct(keys)

    def _find(self, place: Floats) -> Ints:
        found = np.searchsorted(self.up_to, place, side="right") - 1
        return np.minimum(found, self.num_nodes - 1)


def _draw_edges(
    endpoints: _Endpoints, count: int, same: bool, generator: np.random.Generator
) -> Ints:
    """Draw ``count`` distinct pairs, as keys, all within or all between classes."""
    if count > _FULLEST * endpoints.num_pairs[same]:
        kind = "same" if same else "different"
        raise InvalidInput(
            f"{count} edges within nodes of the {kind} class asked for: expected at "
            f"most {int(_FULLEST * endpoints.num_pairs[same])}; lower average_degree "
            "or change homophily."
        )
    weights = np.diff(endpoints.up_to)
    keys = np.empty(0, dtype=np.int64)
    for number in itertools.count():
        if (missing := count - len(keys)) == 0:
            break
        if number == _WEIGHTED_ROUNDS:
            # Hubs that are joined to everything leave no room: others get the rest.
            endpoints.use(np.ones_like(weights))
        drawn = endpoints.pairs(missing + missing // 4 + 16, same, generator)
        fresh = drawn[~np.isin(drawn, keys, assume_unique=True)]
        keys = np.concatenate([keys, generator.permutation(fresh)[:missing]])
    endpoints.use(weights)
    return keys


def _power_law(
    num_nodes: int, exponent: float, mean: float, generator: np.random.Generator
) -> Floats:
    """Draw weights of a power law, capped where a pair would be sure to be joined."""
    power = -1.0 / (exponent - 1.0)
    # Not numpy's power, which rounds differently with AVX-512.
    drawn = (1.0 - generator.random(num_nodes)).tolist()
    weights = np.array([one**power for one in drawn])
    cap = float(weights.mean()) * math.sqrt(num_nodes / mean)
    return weights.clip(max=cap)


def planted() -> Graph:
    """Two communities of 200 nodes; 30 % of the edges join the wrong ones.

    Features say little, so that a method has to use the edges, and gains where it can
    tell the wrong ones.
    """
    return generate_graph(
        400,
        num_classes=2,
        average_degree=8.0,
        homophily=0.7,
        num_features=32,
        feature_signal=0.25,
        split="random:10/20/70",
        seed=0,
    )
