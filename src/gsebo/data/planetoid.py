"""The citation graphs of Planetoid (Yang et al., 2016): Cora, Citeseer, PubMed.

Raw files ``ind.NAME.*``: ``x``, ``y`` are features and one-hot labels of the training
nodes, ``allx``, ``ally`` of all but the test nodes, ``tx``, ``ty`` of the test nodes in
the order of ``test.index``; ``graph`` is a dictionary of neighbours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from torch_geometric.data import Data

from gsebo.data.edge_list import undirected
from gsebo.data.features import features_from_csr
from gsebo.data.restricted_pickle import read_pickle

_NUM_VALIDATION = 500


@dataclass(frozen=True)
class PlanetoidParts:
    """What the raw files hold, unpickled.

    Attributes:
        allx: Features of all but the test nodes.
        ally: Their labels, one-hot.
        tx: Features of the test nodes, in the order of ``test_index``.
        ty: Their labels, one-hot.
        neighbours: The neighbours of each node.
        test_index: The node ids of the test nodes.
        num_train: How many of the first nodes train.
    """

    allx: csr_matrix
    ally: NDArray[Any]
    tx: csr_matrix
    ty: NDArray[Any]
    neighbours: Mapping[int, Sequence[int]]
    test_index: NDArray[np.int64]
    num_train: int


def convert_planetoid(files: Mapping[str, bytes], name: str) -> Data:
    """Make the graph called ``name`` from its raw files, public split included."""
    keys = ("allx", "ally", "tx", "ty", "graph", "y")
    allx, ally, tx, ty, neighbours, y = (
        read_pickle(files[f"ind.{name}.{key}"]) for key in keys
    )
    test_index = read_test_index(files[f"ind.{name}.test.index"])
    return assemble(PlanetoidParts(allx, ally, tx, ty, neighbours, test_index, len(y)))


def read_test_index(payload: bytes) -> NDArray[np.int64]:
    """Return the node ids of the test nodes, one on each line of the file."""
    return np.array(payload.decode().split(), dtype=np.int64)


def assemble(parts: PlanetoidParts) -> Data:
    """Put the parts in the order of the node ids, and make the masks.

    Ids within the range of the test nodes that no test node has (15 in Citeseer) get
    zero features and label 0 and are in no mask, as everybody does.
    """
    num_known = parts.allx.shape[0]
    num_nodes = max(int(parts.test_index.max()) + 1, num_known)
    row_of_node = np.full(num_nodes, num_known + len(parts.test_index))
    row_of_node[:num_known] = np.arange(num_known)
    row_of_node[parts.test_index] = num_known + np.arange(len(parts.test_index))
    padding = csr_matrix((1, parts.allx.shape[1]), dtype=np.float32)
    features = vstack([parts.allx, parts.tx, padding]).tocsr()[row_of_node]
    no_label = np.zeros((1, parts.ally.shape[1]), dtype=parts.ally.dtype)
    one_hot = np.concatenate([parts.ally, parts.ty, no_label])[row_of_node]
    node = np.arange(num_nodes)
    val_end = parts.num_train + _NUM_VALIDATION
    return Data(
        x=features_from_csr(features),
        edge_index=undirected(*_edges(parts.neighbours), num_nodes),
        y=torch.from_numpy(one_hot.argmax(axis=1)),
        train_mask=torch.from_numpy(node < parts.num_train),
        val_mask=torch.from_numpy((node >= parts.num_train) & (node < val_end)),
        test_mask=torch.from_numpy(np.isin(node, parts.test_index)),
    )


def _edges(
    neighbours: Mapping[int, Sequence[int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    counts = [len(listed) for listed in neighbours.values()]
    source = np.repeat(np.fromiter(neighbours, dtype=np.int64), counts)
    target = np.concatenate([np.asarray(t, np.int64) for t in neighbours.values()])
    return source, target


convert_cora = partial(convert_planetoid, name="cora")
convert_citeseer = partial(convert_planetoid, name="citeseer")
convert_pubmed = partial(convert_planetoid, name="pubmed")
