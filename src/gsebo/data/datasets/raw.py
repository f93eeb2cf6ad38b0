"""Datasets as they were published, made into graphs.

The citation graphs of Planetoid (Yang et al., 2016), files ``ind.NAME.*``: ``y`` has
labels of the training nodes, ``allx``, ``ally`` features and one-hot labels of all
but the test nodes, ``tx``, ``ty`` of the test nodes in the order of ``test.index``;
``graph`` is a dictionary of neighbors. Terrorist attacks joined when they happened at
one place (LINQS, Zhao et al., 2006): no split is published; the masks are per class, in
file order, as in the public code that uses this graph. Airports of the USA joined by
flights (Ribeiro et al., struc2vec, 2017): nodes are numbered by first appearance in the
list of edges, features are the degree, one-hot, and the masks are those that GAug (Zhao
et al., 2021) published.

Some are pickles. A pickle may name any function and have it called. Here only the few
classes that arrays and adjacency lists are made of can be named; all else is refused.
"""

import io
import pickle
from _codecs import encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from torch.nn.functional import one_hot

from gsebo.data.seeding import undirected
from gsebo.data.splits import apply_split
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput
from gsebo.graph.features import features_from_csr
from gsebo.graph.graph import Graph


def convert_terrorist(files: Mapping[str, bytes]) -> Graph:
    """Make the graph of co-located attacks from the raw text files.

    Its split, 10/20/70 % of each class in the order of the file, was taken because the
    plain GCN has the paper's test accuracy with it; the paper's own is not public.
    """
    classes = files["terrorist_attack.labels"].decode().split()
    rows = [line.split() for line in _lines(files["terrorist_attack.nodes"])]
    node_of = {row[0]: node for node, row in enumerate(rows)}
    pairs = [line.split() for line in _lines(files["terrorist_attack_loc.edges"])]
    source, target = np.array(
        [[node_of[first], node_of[second]] for first, second in pairs], dtype=np.int64
    ).T
    features = np.array([row[1:-1] for row in rows], dtype=np.float32)
    graph = Graph(
        x=torch.from_numpy(features),
        edge_index=undirected(source, target, len(rows)),
        y=torch.tensor([classes.index(row[-1]) for row in rows]),
    )
    return apply_split(graph, "ratio:10/20/70")


def _lines(payload: bytes) -> list[str]:
    return [line for line in payload.decode().splitlines() if line.strip()]


def _plain_dtype(spec: str, align: int = 0, copy: int = 1) -> np.dtype[Any]:
    """Make a dtype from the integers old files hold where numpy now wants bools."""
    dtype = np.dtype(spec, align=bool(align), copy=bool(copy))
    if dtype.hasobject:
        raise InvalidInput("a pickle holds an array of Python objects: refused.")
    return dtype


_RECONSTRUCT = np.empty(0).__reduce__()[0]

ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): _plain_dtype,
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
        ("scipy.sparse._csr", "csr_matrix"): csr_matrix,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
        ("_codecs", "encode"): encode,
    }
)
"""The only globals a pickle may name, and what each of them means here."""


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        """Return an allowed global; a name is never imported."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise InvalidInput(
                f"a pickle names {module}.{name}: expected only arrays, sparse "
                "matrices, lists and dictionaries."
            ) from None


def read_pickle(payload: bytes) -> Any:
    """Return the arrays, lists and dictionaries of a pickle of Python 2 or 3."""
    try:
        return _RestrictedUnpickler(io.BytesIO(payload), encoding="latin1").load()
    except InvalidInput:
        raise
    except Exception as error:
        # A damaged pickle may raise whatever its half-read instructions run into.
        raise InvalidInput("a pickle is damaged: expected a whole file.") from error


def convert_air_usa(files: Mapping[str, bytes]) -> Graph:
    """Make the graph from struc2vec's two text files and GAug's split."""
    names = files["usa-airports.edgelist"].decode().split()
    node_of = {name: node for node, name in enumerate(dict.fromkeys(names))}
    ends = np.array([node_of[name] for name in names], dtype=np.int64)
    edge_index = undirected(ends[0::2], ends[1::2], len(node_of))
    _, *labelled = files["labels-usa-airports.txt"].decode().splitlines()
    label_of = dict(line.split() for line in labelled if line.strip())
    degree = torch.bincount(edge_index[0], minlength=len(node_of))
    graph = Graph(
        x=one_hot(degree - 1).float(),
        edge_index=edge_index,
        y=torch.tensor([int(label_of[name]) for name in node_of]),
    )
    split = read_pickle(files["airport_tvt_nids.pkl"])
    for key, nodes in zip(MASKS, split, strict=True):
        mask = np.isin(np.arange(len(node_of)), nodes)
        graph[key] = torch.from_numpy(mask)
    return graph


_NUM_VALIDATION = 500


def convert_planetoid(files: Mapping[str, bytes], name: str) -> Graph:
    """Make the graph called ``name`` from its raw files, public split included."""
    allx, ally, tx, ty, neighbors, y = (
        read_pickle(files[f"ind.{name}.{key}"])
        for key in ("allx", "ally", "tx", "ty", "graph", "y")
    )
    index = files[f"ind.{name}.test.index"]
    return assemble(allx, ally, tx, ty, neighbors, index, len(y))


def assemble(
    allx: csr_matrix,
    ally: NDArray[Any],
    tx: csr_matrix,
    ty: NDArray[Any],
    neighbors: Mapping[int, Sequence[int]],
    index: bytes,
    num_train: int,
) -> Graph:
    """Put the nodes in the order of their ids, and make the masks.

    ``index`` has the ids of the test nodes, one on each line. Ids within their range
    that no test node has (15 in Citeseer) get zero features and label 0 and are in no
    mask, as everybody does.
    """
    test = np.array(index.decode().split(), dtype=np.int64)
    num_known = allx.shape[0]
    num_nodes = max(int(test.max()) + 1, num_known)
    row_of_node = np.full(num_nodes, num_known + len(test))
    row_of_node[:num_known] = np.arange(num_known)
    row_of_node[test] = num_known + np.arange(len(test))
    padding = csr_matrix((1, allx.shape[1]), dtype=np.float32)
    features = vstack([allx, tx, padding]).tocsr()[row_of_node]
    no_label = np.zeros((1, ally.shape[1]), dtype=ally.dtype)
    labels = np.concatenate([ally, ty, no_label])[row_of_node].argmax(axis=1)
    counts = [len(listed) for listed in neighbors.values()]
    source = np.repeat(np.fromiter(neighbors, dtype=np.int64), counts)
    target = np.concatenate([np.asarray(t, np.int64) for t in neighbors.values()])
    node = np.arange(num_nodes)
    val = (node >= num_train) & (node < num_train + _NUM_VALIDATION)
    return Graph(
        x=features_from_csr(features),
        edge_index=undirected(source, target, num_nodes),
        y=torch.from_numpy(labels),
        train_mask=torch.from_numpy(node < num_train),
        val_mask=torch.from_numpy(val),
        test_mask=torch.from_numpy(np.isin(node, test)),
    )


convert_cora = partial(convert_planetoid, name="cora")
convert_citeseer = partial(convert_planetoid, name="citeseer")
convert_pubmed = partial(convert_planetoid, name="pubmed")
