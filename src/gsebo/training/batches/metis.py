"""Clusters of a graph with few edges between them, by METIS."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from gsebo.data.arrays import GraphArrays
from gsebo.errors import InvalidInput

_MOST_EDGES = 2**28
# The k-way scheme starts from about so many nodes for each part; with fewer it leaves
# parts empty, while repeated bisection fills them.
_NODES_PER_PART = 30
# Up to so many parts, bisection gives the better cut.
_FEW_PARTS = 8
# One partition for a graph, whatever the seed of the training.
_SEED = 0


def partition_graph(arrays: GraphArrays, num_parts: int) -> NDArray[np.int32]:
    """Divide a graph into parts of about equal size, int32 ``[nodes]``.

    It is done in memory, with every edge in both directions. The same graph gives the
    same parts.

    Args:
        arrays: The graph.
        num_parts: Number of parts, at least 2; some may stay empty if they are small.

    Raises:
        InvalidInput: The graph is too large, or pymetis is not installed.
    """
    if arrays.num_edges > _MOST_EDGES:
        raise InvalidInput(
            f"a graph with {arrays.num_edges} edges given to the partition sampler; "
            f"expected at most {_MOST_EDGES}, or the neighbour sampler."
        )
    try:
        import pymetis
    except ImportError as error:
        raise InvalidInput(
            "the partition sampler needs pymetis, which is not installed; expected: "
            "pip install 'gsebo[large]'."
        ) from error
    starts, neighbours = _both_directions(arrays, pymetis.zero_copy_dtype())
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(starts, neighbours),
        recursive=num_parts <= _FEW_PARTS
        or arrays.num_nodes < _NODES_PER_PART * num_parts,
        options=pymetis.Options(seed=_SEED),
    )
    return np.asarray(found.vertex_part, np.int32)


def _both_directions(
    arrays: GraphArrays, number: np.dtype[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    ones = np.ones(arrays.num_edges, np.int8)
    shape = (arrays.num_nodes, arrays.num_nodes)
    one_way = csr_array((ones, arrays.source, arrays.indptr), shape=shape)
    both = one_way + one_way.T.tocsr()
    return both.indptr.astype(number), both.indices.astype(number)
