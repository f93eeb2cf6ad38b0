"""Edges that are added or removed whatever the classes of their nodes."""

from copy import copy

import numpy as np
import torch
from torch_geometric.data import Data

from gsebo.data.edge_list import sorted_distinct
from gsebo.data.features import require_numbers
from gsebo.data.noise_pairs import add_pairs, pair_keys
from gsebo.data.noise_share import share_of
from gsebo.data.seeding import seeded_generator
from gsebo.data.sizes import sized
from gsebo.errors import InvalidInput


def add_random_edges(data: Data, count: int, seed: int = 0) -> Data:
    """Return a copy of a graph with ``count`` more undirected edges.

    The pairs are drawn uniformly, without replacement, from all pairs of two nodes
    that are no edge in either direction. Both directions of each are appended after
    the user's edges. No label is read.

    Raises:
        InvalidInput: ``count`` is negative or more than there are such pairs.
    """
    # With a group of its own for each node, every pair is one between groups.
    groups = np.arange(int(sized(data).num_nodes), dtype=np.int64)
    return add_pairs(data, groups, count, seed, "random")


def remove_edges(data: Data, percent: int, seed: int = 0) -> Data:
    """Return a copy of a graph without some of its undirected edges.

    An edge goes with its opposite direction and its duplicates. Self-loops stay, and so
    does at least one edge; the order of what stays is as before.

    Args:
        data: The graph.
        percent: Of the pairs of nodes that are joined.
        seed: Decides which.

    Raises:
        InvalidInput: ``percent`` is not from 0 to 100, or there are no edges.
    """
    edges = data.edge_index.cpu().numpy().astype(np.int64)
    is_loop = edges[0] == edges[1]
    keys = pair_keys(edges, int(sized(data).num_nodes))
    pairs = sorted_distinct(keys[~is_loop])
    if len(pairs) == 0:
        raise InvalidInput("the graph has no edges: expected some, to remove a part.")
    count = min(share_of(percent, len(pairs)), len(pairs) - 1)
    gone = seeded_generator(seed).choice(pairs, count, replace=False)
    kept = torch.from_numpy(is_loop | ~np.isin(keys, gone)).to(data.edge_index.device)
    noisy = copy(data)
    noisy.edge_index = data.edge_index[:, kept]
    for key in ("edge_weight", "edge_attr"):
        if key not in data or (held := data[key]) is None:
            continue
        if not isinstance(held, torch.Tensor) or held.shape[:1] != kept.shape:
            raise InvalidInput(
                f"{key} does not belong to the edges: expected a tensor with a row for "
                f"each of {len(kept)} edges, to remove a part."
            )
        require_numbers(held, key)
        noisy[key] = held[kept]
    return noisy
