"""Sources of the edges into a range of nodes, drawn one by one on the CPU."""

from typing import Any

import numpy as np
from numba import njit

_INLINED: dict[str, Any] = {"cache": True, "nogil": True, "inline": "always"}
# Draws per wanted edge, at most: what was drawn before is drawn again.
_ATTEMPTS, _MORE_ATTEMPTS = 4, 32


@njit(**_INLINED)
def mixed(number):  # type: ignore[no-untyped-def]
    """Mix 64 bits, as splitmix64 does."""
    number = np.uint64(number + np.uint64(0x9E3779B97F4A7C15))
    number = np.uint64(
        (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    )
    number = np.uint64(
        (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    )
    return np.uint64(number ^ (number >> np.uint64(31)))


@njit(**_INLINED)
def unit(bits):  # type: ignore[no-untyped-def]
    """A number from 0 to below 1 of 64 random bits."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def draw_unit(key, begin, numbers):  # type: ignore[no-untyped-def]
    """Fill an array with numbers that belong to the nodes from ``begin`` on."""
    for place in range(len(numbers)):
        numbers[place] = unit(mixed(mixed(np.uint64(begin + place)) ^ key))


@njit(**_INLINED)
def ranked(share, least, most, power, shift, count):  # type: ignore[no-untyped-def]
    """Rank from 0 to below ``count``, by weights ``(rank + shift) ** (power - 1)``."""
    rank = np.int64((least + share * (most - least)) ** (1.0 / power) - shift)
    return min(max(rank, np.int64(0)), np.int64(count - 1))


@njit(cache=True, nogil=True)
def draw_sources(  # type: ignore[no-untyped-def]
    key, begin, degrees, num_nodes, num_classes, homophily, power, shift, sources
):
    """Draw distinct sources of each node, sorted.

    The class of a node is its number modulo the number of classes. Within a class the
    weights of sources follow a power law of a rank, which an affine permutation spreads
    over the class.

    Args:
        key: Random bits of the seed.
        begin: Number of the first node.
        degrees: Edges wanted into each node; the edges found, afterwards.
        num_nodes: Number of nodes of the graph.
        num_classes: Number of classes.
        homophily: Share of the sources that are of the node's own class.
        power: One less the slope of the weights.
        shift: Keeps the first ranks from being too heavy.
        sources: Filled from its beginning, node by node.

    Returns:
        How many sources were filled in.
    """
    filled = 0
    largest = num_nodes // num_classes + 1
    least, most = shift**power, (largest + shift) ** power
    for place in range(len(degrees)):
        target = np.int64(begin + place)
        state = mixed(mixed(np.uint64(target)) ^ key)
        own = target % num_classes
        wanted = degrees[place]
        held = 0
        for attempt in range(_ATTEMPTS * wanted + _MORE_ATTEMPTS):
            if held == wanted:
                break
            one = mixed(state + np.uint64(2 * attempt))
            two = mixed(state + np.uint64(2 * attempt + 1))
            group = own
            same = unit(one)
            if same >= homophily:
                # What is left of the number says which of the other classes.
                other = (same - homophily) / (1.0 - homophily)
                group = (own + 1 + np.int64(other * (num_classes - 1))) % num_classes
            count = (num_nodes - group + num_classes - 1) // num_classes
            rank = ranked(unit(two), least, most, power, shift, count)
            spread = (rank * 2654435761 + 12345 * (group + 1)) % count
            source = group + num_classes * spread
            if source == target:
                continue
            held += insert(sources, filled, held, source)
        degrees[place] = held
        filled += held
    return filled


@njit(cache=True, nogil=True)
def insert(sources, begin, held, source):  # type: ignore[no-untyped-def]
    """Put a number among sorted ones, unless it is there; return how many more."""
    low, high = begin, begin + held
    while low < high:
        middle = (low + high) // 2
        if sources[middle] < source:
            low = middle + 1
        else:
            high = middle
    if low < begin + held and sources[low] == source:
        return 0
    for place in range(begin + held, low, -1):
        sources[place] = sources[place - 1]
    sources[low] = source
    return 1
