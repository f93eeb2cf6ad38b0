"""Edges that are known to be wrong: drawn for a round, and taken out again."""

from __future__ import annotations

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.suspects.pairs import Ints, pair_keys

# Draws for each pair that is wanted before one gives up.
_PATIENCE = 50


def plant(
    pairs: Ints,
    num_nodes: int,
    count: int,
    rng: np.random.Generator,
    apart: Ints | None = None,
) -> Ints:
    """Draw pairs that are not joined, ``[count, 2]``.

    The ends of given edges are shuffled, so that planted edges are at nodes of any
    degree as often as given ones are, and the degree says nothing.

    Args:
        pairs: The given ones, ``[pairs, 2]``.
        num_nodes: Number of nodes.
        count: How many to draw.
        rng: Decides everything.
        apart: Class of each node by what is known and predicted, ``[nodes]``; both ends
            are then of different ones. An edge within a class is rarely called wrong.

    Raises:
        InvalidInput: The graph is so dense that there are not enough such pairs.
    """
    taken = pair_keys(pairs, num_nodes)
    ends, found = pairs.ravel(), np.empty((0, 2), np.int64)
    for _ in range(_PATIENCE):
        drawn = np.stack([rng.choice(ends, 2 * count), rng.choice(ends, 2 * count)], 1)
        fits = drawn[:, 0] != drawn[:, 1]
        if apart is not None:
            fits &= apart[drawn[:, 0]] != apart[drawn[:, 1]]
        drawn = np.sort(drawn[fits], axis=1)
        keys = pair_keys(drawn, num_nodes)
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
