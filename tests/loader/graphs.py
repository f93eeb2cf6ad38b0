"""Graphs as arrays, small and random or real, and what is true of any batch."""

from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gsebo.data.datasets.load import load
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import Batch

# The first example of a test may compile a kernel.
examples = settings(deadline=None, max_examples=40)


def graph_of(pairs: set[tuple[int, int]], num_nodes: int) -> GraphArrays:
    """The graph with these pairs (target, source) as edges."""
    ordered = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(ordered[:, 0], minlength=num_nodes), out=indptr[1:])
    x = np.ones((num_nodes, 2), np.float32)
    return GraphArrays(indptr, ordered[:, 1].astype(np.int32), x)


@st.composite
def graphs(draw: st.DrawFn) -> GraphArrays:
    num_nodes = draw(st.integers(1, 25))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.sets(st.tuples(node, node), max_size=120))
    return graph_of({pair for pair in pairs if pair[0] != pair[1]}, num_nodes)


@st.composite
def graphs_and_nodes(draw: st.DrawFn) -> tuple[GraphArrays, NDArray[np.int64]]:
    arrays = draw(graphs())
    node = st.integers(0, arrays.num_nodes - 1)
    nodes = draw(st.lists(node, min_size=1, unique=True))
    return arrays, np.array(nodes, np.int64)


@cache
def cora() -> GraphArrays:
    return GraphArrays.of(load("cora"))


def random_graph(num_nodes: int, num_edges: int) -> GraphArrays:
    rng = np.random.default_rng(0)
    # Sources and targets with very different degrees.
    ends = (num_nodes * rng.random((num_edges, 2)) ** 2).astype(int)
    pairs = {(i, j) for i, j in ends.tolist() if i != j}
    return graph_of(pairs, num_nodes)


def targets(arrays: GraphArrays) -> NDArray[np.int64]:
    return np.repeat(np.arange(arrays.num_nodes), np.diff(arrays.indptr))


def parts(batch: Batch) -> list[NDArray[np.generic]]:
    fields = ("nodes", "edges", "edge_index", "scale", "degree", "seeds")
    return [getattr(batch, name).numpy() for name in fields]


def same(first: Batch, second: Batch) -> bool:
    pairs = zip(parts(first), parts(second), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def check(batch: Batch, arrays: GraphArrays) -> None:
    """What holds for a batch of any sampler."""
    nodes, edges, (source, target), scale, degree, seeds = parts(batch)
    assert [part.dtype for part in parts(batch)] == [
        *(np.int64,) * 3,
        np.float32,
        *(np.int64,) * 2,
    ]
    assert (np.diff(nodes) > 0).all() and (np.diff(edges) > 0).all()
    assert np.array_equal(nodes[source], arrays.source[edges])
    assert np.array_equal(nodes[target], targets(arrays)[edges])
    assert (np.diff(target * len(nodes) + source) > 0).all()
    assert np.array_equal(degree, np.diff(arrays.indptr)[nodes])
    present = np.bincount(target, minlength=len(nodes))
    expected = degree[target] / present[target]
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    assert (np.diff(seeds) > 0).all()
    assert len(seeds) > 0 and seeds[0] >= 0 and seeds[-1] < len(nodes)


def seeds_of(batch: Batch) -> NDArray[np.int64]:
    return batch.nodes[batch.seeds].numpy()
