"""What draws batches from a graph, and the order in which they are drawn."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader.batch import Batch, Integers
from gsebo.loader.kernels import shuffled
from gsebo.sparse import Noise

# Far from the places of a network; it takes two, and so does each drawing of edges.
ORDER_SITE = 3_000_000
TRAINING_SITE = 3_000_002
COVER_SITE = 3_000_004


class BoundSampler(ABC):
    """Draws batches from one graph.

    A batch is a pure function of the sampler's seed and of what is asked for: the same
    on any number of threads, in any order, as often as wanted. Nodes that are asked for
    are different ones, and at least one but in ``cover``.
    """

    @abstractmethod
    def batch(self, nodes: Integers, number: int) -> Batch:
        """Draw a batch around some of these nodes.

        Batches of consecutive numbers, from 0, go through all of them in a random
        order, then through all of them in another.
        """

    @abstractmethod
    def batches_in_pass(self, nodes: Integers) -> int:
        """How many batches go once through all of these nodes."""

    @abstractmethod
    def cover(self, nodes: Integers) -> Iterator[Batch]:
        """Draw batches whose seeds together are exactly these nodes, each once.

        They are the same each time, and drawn apart from those of ``batch``.
        """


class Sampler(ABC):
    """How batches are drawn, whatever the graph."""

    @abstractmethod
    def bind(
        self, arrays: GraphArrays, *, num_layers: int, batch_size: int, seed: int
    ) -> BoundSampler:
        """Get ready to draw from a graph, which is only read.

        The network looks ``num_layers`` edges away. The size of a batch is in the
        sampler's own unit, and the seed that of all that is drawn.
        """


def piece_of_epoch(length: int, size: int, number: int, seed: int) -> Integers:
    """Which of ``length`` things are in batch ``number``, ascending.

    Every epoch is a random order, cut into pieces of ``size``, the last of which may
    be smaller. It costs as much as the piece, whatever the length.
    """
    if length == 0:
        raise InvalidInput("a batch around no nodes asked for; expected at least one.")
    if number < 0:
        raise InvalidInput(f"batch number {number} given; expected 0 or more.")
    size = min(size, length)
    epoch, piece = divmod(number, pieces_of_epoch(length, size))
    places = np.arange(piece * size, min(piece * size + size, length))
    chosen = shuffled(places, length, Noise(seed, epoch), ORDER_SITE)
    chosen.sort()
    return chosen


def pieces_of_epoch(length: int, size: int) -> int:
    """How many pieces of ``size`` there are in ``length`` things."""
    return -(-length // size)


def check_sizes(num_layers: int, batch_size: int) -> None:
    """Refuse what no sampler can use."""
    if num_layers < 0:
        raise InvalidInput(f"num_layers is {num_layers}; expected 0 or more.")
    if batch_size < 1:
        raise InvalidInput(f"batch_size is {batch_size}; expected at least 1.")


def ascending(nodes: Integers, num_nodes: int) -> Integers:
    """Sort nodes, which have to be different ones of the graph."""
    found = np.sort(nodes)
    if len(found) and (found[0] < 0 or found[-1] >= num_nodes):
        raise InvalidInput(
            f"nodes from {found[0]} to {found[-1]} given; "
            f"expected 0 to {num_nodes - 1}."
        )
    twice = found[1:][found[1:] == found[:-1]]
    if len(twice):
        raise InvalidInput(f"node {twice[0]} given twice; expected different nodes.")
    return found
