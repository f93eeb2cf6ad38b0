"""Terrorist attacks joined when they happened at one place (LINQS, Zhao et al., 2006).

No split is published with it; the masks are per class, in file order, 10 % training,
20 % validation, 70 % test, as in the public code that uses this graph.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch_geometric.data import Data

from gsebo.data.edge_list import undirected
from gsebo.data.splits import apply_split


def convert_terrorist(files: Mapping[str, bytes]) -> Data:
    """Make the graph of co-located attacks from the raw text files."""
    classes = files["terrorist_attack.labels"].decode().split()
    rows = [line.split() for line in _lines(files["terrorist_attack.nodes"])]
    node_of = {row[0]: node for node, row in enumerate(rows)}
    pairs = [line.split() for line in _lines(files["terrorist_attack_loc.edges"])]
    source, target = np.array(
        [[node_of[first], node_of[second]] for first, second in pairs], dtype=np.int64
    ).T
    features = np.array([row[1:-1] for row in rows], dtype=np.float32)
    graph = Data(
        x=torch.from_numpy(features),
        edge_index=undirected(source, target, len(rows)),
        y=torch.tensor([classes.index(row[-1]) for row in rows]),
    )
    return apply_split(graph, "ratio:10/20/70")


def _lines(payload: bytes) -> list[str]:
    return [line for line in payload.decode().splitlines() if line.strip()]
