"""How many of the nearest neighbors the search for candidate edges finds, and when.

``python -m benchmarks.candidates GRAPH ...`` prints for each graph, a name or a file,
the seconds of the search with those for compiling it, the share of the nearest of 2,000
nodes that it finds (of equally near ones, any), and the peak memory of the process; for
up to 20,000 nodes also the seconds of the exact neighbors.
"""

import sys
import time

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from benchmarks.process_memory import peak_bytes
from gsebo.data import load
from gsebo.sparse import SparseFeatures, make_features
from gsebo.sparse.operators import unit_rows
from gsebo.structure.candidates import (
    _EXACT_NODES,
    _as_rows,
    _searched,
    nearest_neighbors,
)

K = 10
SAMPLE = 2000


def recall(features: Tensor | SparseFeatures, found: Tensor) -> float:
    """Share of the neighbors that are no further away than the exact ones."""
    rows = _as_rows(unit_rows(features))
    present = np.flatnonzero(np.asarray(abs(rows).sum(axis=1)).ravel())
    chosen = np.random.default_rng(0).permutation(present)[:SAMPLE]
    source, target = found.numpy()
    hits = 0
    for node in chosen:
        similar = rows[[node]] @ rows.T
        similar = np.ravel(similar.toarray() if issparse(similar) else similar)
        similar[node] = -np.inf
        least = np.partition(similar, -K)[-K]
        hits += (similar[source[target == node]] >= least - 1e-6).sum()
    return float(hits / (K * len(chosen)))


def main(graphs: list[str]) -> None:
    """Print one line for each graph."""
    torch.set_num_threads(1)
    for name in graphs:
        features = make_features(load(name).x, torch.float32, "cpu")
        begun = time.process_time()
        found = _searched(features, K)
        line = f"{name}: search {time.process_time() - begun:.1f} s, "
        line += f"peak memory {peak_bytes() / 2**20:.0f} MiB, "
        line += f"recall {recall(features, found):.3f}"
        if features.shape[0] <= _EXACT_NODES:
            begun = time.process_time()
            nearest_neighbors(features, K)
            line += f", exact {time.process_time() - begun:.1f} s"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
