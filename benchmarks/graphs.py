"""Graphs by name, with masks, ready for every contender."""

import os
from copy import copy
from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from benchmarks.failure import BenchmarkError
from gsebo import apply_split, load_data
from gsebo.data import DATASETS


def load_graph(name: str, *, seed: int = 0) -> Data:
    """Load a dataset of gsebo's, or ``NAME.npz`` from the folder ``GSEBO_DATA``.

    A graph without masks gets those of the ``planetoid`` split.
    """
    if name in DATASETS:
        data = load_data(name)
    else:
        path = Path(os.environ.get("GSEBO_DATA", ".")) / f"{name}.npz"
        if not path.is_file():
            raise BenchmarkError(
                f"dataset {name!r} asked for: expected one of {', '.join(DATASETS)} or "
                "the name of an .npz file in the folder that GSEBO_DATA names."
            )
        data = load_data(path)
    return data if "train_mask" in data else apply_split(data, "planetoid", seed)


def in_double(data: Data) -> Data:
    """The same graph with features in float64."""
    exact = copy(data)
    exact.x = data.x.double()
    return exact


def small_part(data: Data) -> Data:
    """The graph among the training nodes, their neighbors and a few others.

    Small, and of the same kind: the same classes, features as sparse as before.
    """
    source, target = data.edge_index
    chosen = data.train_mask.clone()
    chosen[source[data.train_mask[target]]] = True
    chosen[data.val_mask.nonzero().squeeze(-1)[: int(data.train_mask.sum())]] = True
    nodes = chosen.nonzero().squeeze(-1)
    edges, _ = subgraph(
        nodes, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes
    )
    return Data(
        # Only this form of sparse tensors can select rows.
        x=data.x.to_sparse_coo().index_select(0, nodes).to_dense(),
        edge_index=edges,
        y=data.y[nodes],
        train_mask=data.train_mask[nodes],
        val_mask=data.val_mask[nodes],
    )
