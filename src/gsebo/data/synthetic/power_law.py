"""Labelled graphs with power-law degrees, drawn straight into a folder on disk.

``generate_graph`` draws graphs that fit in memory, undirected and with an exact number
of edges. Here edges are directed, and memory depends on neither nodes nor edges.
"""

import math
from os import PathLike
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gsebo.data.formats.edge_sort import LARGEST_COUNT
from gsebo.data.formats.folder import GraphFolder, new_folder
from gsebo.data.formats.table_rows import Progress
from gsebo.data.seeding import require

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
    over the class. ``degrees`` are the edges wanted into each node from ``begin`` on;
    the edges found, afterwards. ``sources`` are filled from their beginning, node by
    node; how many is returned.
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


_EXPONENT = 2.5
_NODES_AT_ONCE = 2**16
# Numbers of independent streams of one seed.
_DEGREE, _ROUNDING, _SPLIT, _SOURCE, _NOISE, _CENTRE = range(6)
_CORRECTIONS = 4
_PRECISIONS = {"float32": np.float32, "float16": np.float16}


def write_power_law(
    path: str | PathLike[str],
    num_nodes: int,
    num_edges: int,
    *,
    num_features: int = 32,
    num_classes: int = 10,
    homophily: float = 0.8,
    labelled_share: float = 0.01,
    feature_signal: float = 1.0,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress | None = None,
) -> GraphFolder:
    """Draw a directed graph into a folder, some nodes at a time.

    The edges into nodes follow a power law with the exponent 2.5, cut off near the root
    of the number of edges; their sources are drawn in proportion to weights of a power
    law too. The class of a node is its number modulo the number of classes. Features
    are ``feature_signal`` times the mean of the class plus standard noise.

    The folder does not exist yet. Up to 2 % of the edges may be missing. A share of the
    nodes is labelled, of which half train and half validate; as many others test.
    ``dtype`` is ``float32``, or ``float16`` for half the room.
    """
    each = f"at least four for each of {num_classes} classes"
    most = num_nodes * (num_nodes - 1) // 16
    sixteenth = f"1 to {most}, a sixteenth of all pairs"
    half = "more than 0 and at most 0.5"
    fits = 4 * num_classes <= num_nodes <= LARGEST_COUNT
    require(num_classes >= 2, f"{num_classes=!s}", "at least 2")
    require(fits, f"{num_nodes=!s}", f"{each} and at most {LARGEST_COUNT}")
    require(1 <= num_edges <= most, f"{num_edges=!s}", sixteenth)
    require(num_features >= 1, f"{num_features=!s}", "at least 1")
    require(0 <= homophily <= 1, f"{homophily=!s}", "a share from 0 to 1")
    require(0 < labelled_share <= 0.5, f"{labelled_share=!s}", half)
    require(0 <= feature_signal < math.inf, f"{feature_signal=!s}", "0 or more")
    require(dtype in _PRECISIONS, f"{dtype=}", "float32 or float16")
    require(seed >= 0, f"{seed=!s}", "0 or more")
    scale, cap = _scale_of_degrees(num_nodes, num_edges, seed)
    slope = 1 / (_EXPONENT - 1)
    power = 1 - slope
    # Keeps the heaviest source near the root of the number of edges.
    heaviest = math.sqrt(num_edges / num_nodes) * num_nodes ** (slope - 0.5)
    shift = (power * heaviest) ** (1 / slope)
    means = _generator(seed, _CENTRE, 0).standard_normal((num_classes, num_features))
    signal = (feature_signal * means).astype(np.float32)
    with new_folder(path) as writer:
        source = writer.array("source", np.int32)
        indptr = writer.array("indptr", np.int64)
        x = writer.array("x", _PRECISIONS[dtype], (num_features,))
        y = writer.array("y", np.int64)
        masks = [writer.array(f"{name}_mask", np.bool_) for name in _MASK_ENDS]
        indptr.append(np.zeros(1, np.int64))
        for begin in range(0, num_nodes, _NODES_AT_ONCE):
            end = min(begin + _NODES_AT_ONCE, num_nodes)
            degrees = _degrees(seed, begin, end, scale, cap)
            room = np.empty(int(degrees.sum()), np.int32)
            law = (num_nodes, num_classes, homophily, power, shift)
            key = _key(seed, _SOURCE)
            found = draw_sources(key, begin, degrees, *law, room)
            indptr.append(source.rows + np.cumsum(degrees))
            source.append(room[:found])
            labels = np.arange(begin, end) % num_classes
            y.append(labels)
            shape = (end - begin, num_features)
            drawn = _generator(seed, _NOISE, begin).standard_normal(shape, np.float32)
            x.append(drawn + signal[labels])
            place = _units(seed, _SPLIT, begin, end)
            for mask, (low, high) in zip(masks, _MASK_ENDS.values(), strict=True):
                low, high = low * labelled_share, high * labelled_share
                mask.append((place >= low) & (place < high))
            if progress is not None:
                progress("drawing", end, num_nodes)
        facts = {
            "num_nodes": num_nodes,
            "num_edges": num_edges,
            "homophily": homophily,
            "labelled_share": labelled_share,
            "feature_signal": feature_signal,
            "seed": seed,
        }
        writer.finish(num_classes, {"drawn": facts})
    return GraphFolder.open(path)


# Where the masks begin and end, in units of the labelled share.
_MASK_ENDS = {"train": (0.0, 0.5), "val": (0.5, 1.0), "test": (1.0, 2.0)}


def _scale_of_degrees(num_nodes: int, num_edges: int, seed: int) -> tuple[float, float]:
    """What to multiply weights by, and where to cut them, for so many edges in all."""
    mean = num_edges / num_nodes
    cap = min(max(math.sqrt(num_edges), 4 * mean), (num_nodes - 1) / 2)
    scale = mean / 3
    # A heavy tail sums up to less or more than expected: what was drawn is counted.
    for _ in range(_CORRECTIONS):
        total = 0
        for begin in range(0, num_nodes, _NODES_AT_ONCE):
            end = min(begin + _NODES_AT_ONCE, num_nodes)
            total += int(_degrees(seed, begin, end, scale, cap).sum())
        scale *= num_edges / max(total, 1)
    return scale, cap


def _degrees(
    seed: int, begin: int, end: int, scale: float, cap: float
) -> NDArray[np.int64]:
    """Edges wanted into each node: a power law, rounded up or down by chance."""
    weight = (1 - _units(seed, _DEGREE, begin, end)) ** (-1 / (_EXPONENT - 1))
    wanted = np.minimum(scale * weight, cap)
    return (wanted + _units(seed, _ROUNDING, begin, end)).astype(np.int64)


def _units(seed: int, stream: int, begin: int, end: int) -> NDArray[np.float64]:
    """Numbers from 0 to below 1, each a pure function of seed, stream and node."""
    numbers = np.empty(end - begin)
    draw_unit(_key(seed, stream), begin, numbers)
    return numbers


def _key(seed: int, stream: int) -> np.uint64:
    words = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)
    return np.uint64(words[0])


def _generator(seed: int, stream: int, begin: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream, begin]))
