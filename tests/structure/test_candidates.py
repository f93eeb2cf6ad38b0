"""Candidate edges against scikit-learn's neighbors, exact and by the library."""

import ast
import builtins
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import issparse
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import normalize
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import SparseFeatures, make_features
from gsebo.structure import candidates
from gsebo.structure.candidates import candidate_edges

from .graphs import examples, graph, graphs

K = 3
EMPTY_ROWS = [4, 30]


def random_features(num_nodes: int, filled: float) -> Tensor:
    drawn = np.random.default_rng(7)
    x = drawn.random((num_nodes, 40)) * (drawn.random((num_nodes, 40)) < filled)
    x[EMPTY_ROWS] = 0
    return torch.from_numpy(x)


def expected_edges(x: Tensor, graph: CanonicalGraph) -> set[tuple[int, int]]:
    """Both ways, of positive cosines, without what is there."""
    near = kneighbors_graph(x.numpy(), K, metric="cosine").toarray()
    unit = normalize(x.numpy())
    near *= unit @ unit.T > 0
    both = {(int(i), int(j)) for i, j in np.argwhere(near + near.T)}
    return both - set(map(tuple, graph.edge_index.T.tolist()))


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, edges.T.tolist()))


def some_edges(num_nodes: int, x: Tensor) -> CanonicalGraph:
    """Half of the neighbors one way, and others."""
    near = np.argwhere(kneighbors_graph(x.numpy(), K, metric="cosine").toarray())
    edges = torch.from_numpy(near[::2]).T
    return graph(torch.cat([edges, torch.tensor([[0, 1], [9, 0]])], 1), num_nodes)


@pytest.mark.parametrize("filled", [0.6, 0.2])
def test_the_nearest_both_ways_without_known_edges(filled: float) -> None:
    x = random_features(60, filled)
    known = some_edges(60, x)
    features = make_features(x, torch.float64, "cpu")
    assert isinstance(features, SparseFeatures) == (filled < 0.25)
    edges = candidate_edges(features, K, known)
    assert pairs(edges) == expected_edges(x, known)
    assert not torch.isin(edges, torch.tensor(EMPTY_ROWS)).any()


@examples
@given(graphs(), st.integers(0, 4), st.integers(0, 99))
def test_edges_are_sorted_distinct_and_new(
    known: CanonicalGraph, k: int, seed: int
) -> None:
    size = known.num_nodes
    # Few numbers, so that there are equals, opposites and rows of zeros.
    x = torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (size, 2)))
    edges = candidate_edges(x.double(), k, known)
    assert edges.dtype == torch.int64
    source, target = edges
    assert (source != target).all()
    assert ((target * size + source).diff() > 0).all()
    assert not pairs(edges) & pairs(known.edge_index)
    assert ((x[source] * x[target]).sum(1) > 0).all()
    both_ways = pairs(edges) | pairs(known.edge_index)
    assert all((j, i) in both_ways for i, j in pairs(edges))


def brute_force(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put something in the place of the library that finds all, but not tidily.

    The real one takes half a minute to compile itself.
    """
    calls: list[dict[str, Any]] = []

    class NNDescent:
        def __init__(self, rows: Any, **options: Any) -> None:
            calls.append({"rows": rows, **options})
            unit = normalize(rows)
            similar = unit @ unit.T
            similar = similar.toarray() if issparse(similar) else similar
            nearest = np.argsort(-similar, axis=1, kind="stable")
            found = nearest[:, : options["n_neighbors"]].astype(np.int32)
            found[:, -1] = -1
            warnings.warn("Failed to correctly find n_neighbors for", stacklevel=1)
            self.neighbor_graph = found, None

    module = ModuleType("pynndescent")
    module.NNDescent = NNDescent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynndescent", module)
    monkeypatch.setattr(candidates, "_EXACT_NODES", 10)
    return calls


@pytest.mark.parametrize("filled", [0.6, 0.2])
def test_large_graphs_are_given_to_the_library(
    filled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = brute_force(monkeypatch)
    x = random_features(60, filled)
    known = some_edges(60, x)
    features = make_features(x, torch.float32, "cpu")
    found = candidate_edges(features, K, known)
    assert pairs(found) == expected_edges(x, known)
    (call,) = calls
    rows, dense = call["rows"], np.delete(x.numpy(), EMPTY_ROWS, axis=0)
    assert issparse(rows) == (filled < 0.25)
    np.testing.assert_allclose(
        rows.toarray() if issparse(rows) else rows, dense.astype(np.float32)
    )
    assert call["metric"] == "cosine"


@pytest.mark.parametrize("present", [0, 1])
def test_large_graphs_with_hardly_any_features(
    present: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brute_force(monkeypatch)
    x = torch.zeros(20, 3)
    x[:present] = 1
    assert candidate_edges(x, K, graph([[], []], 20)).shape == (2, 0)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_EXACT_NODES", 10)
    monkeypatch.delitem(sys.modules, "pynndescent", raising=False)
    importing = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "pynndescent":
            raise ImportError(name)
        return importing(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    message = r"60 nodes.*pip install pynndescent.*10 nodes\.$"
    with pytest.raises(InvalidInput, match=message):
        candidate_edges(random_features(62, 0.6), K, graph([[], []], 62))


def test_the_library_knows_what_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running it would take half a minute; benchmarks/candidates.py does it."""
    known = options_of_the_library()
    calls = brute_force(monkeypatch)
    candidate_edges(random_features(60, 0.6), K, graph([[], []], 60))
    (call,) = calls
    del call["rows"]
    assert call.keys() <= known


def options_of_the_library() -> set[str]:
    """Read from its source: it compiles for a quarter of a minute to be imported."""
    found = find_spec("pynndescent")
    if found is None or found.origin is None:
        pytest.skip("no pynndescent")
    source = Path(found.origin).with_name("pynndescent_.py").read_text("utf-8")
    (library,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "NNDescent"
    )
    (start,) = (
        node
        for node in library.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    return {argument.arg for argument in start.args.args[2:]}
