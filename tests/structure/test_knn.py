import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from gsebo.sparse import SparseFeatures, make_features
from gsebo.structure import candidates as knn
from gsebo.structure.candidates import nearest_neighbors

from .graphs import examples


def random_features(num_nodes: int, channels: int, filled: float, seed: int) -> Tensor:
    drawn = np.random.default_rng(seed)
    x = drawn.normal(size=(num_nodes, channels))
    return torch.from_numpy(x * (drawn.random(x.shape) < filled))


def matrix_of(edges: Tensor, num_nodes: int) -> Tensor:
    """Row = the node, column = its neighbor, as scikit-learn has it."""
    found = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    source, target = edges
    found[target, source] = 1
    return found


@pytest.mark.parametrize("filled", [1.0, 0.2])
@pytest.mark.parametrize("chunk", [1, 200, 1 << 24])
def test_the_neighbors_are_those_of_scikit_learn(
    filled: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knn, "_CHUNK", chunk)
    x = random_features(40, 90, filled, seed=3)
    features = make_features(x, torch.float64, "cpu")
    assert isinstance(features, SparseFeatures) == (filled < 0.25)
    edges = nearest_neighbors(features, 4)
    expected = kneighbors_graph(x.numpy(), 4, metric="cosine").toarray()
    assert torch.equal(matrix_of(edges, 40), torch.from_numpy(expected))


@examples
@given(st.integers(1, 8), st.integers(1, 9), st.integers(0, 99))
def test_every_node_has_k_others_however_many_are_equal(
    num_nodes: int, k: int, seed: int
) -> None:
    # Few numbers, so that there are equals and rows of zeros.
    x = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (num_nodes, 2)))
    edges = nearest_neighbors(x.double(), k)
    each = min(k, num_nodes - 1)
    assert edges.shape == (2, num_nodes * each)
    source, target = edges
    assert (source != target).all()
    assert torch.equal(target, torch.arange(num_nodes).repeat_interleave(each))
    keys = target * num_nodes + source
    assert (keys.diff() > 0).all()


def test_of_equals_the_first_are_taken() -> None:
    edges = nearest_neighbors(torch.ones(6, 2), 2)
    assert edges[0].view(6, 2).tolist() == [[1, 2], [0, 2], *[[0, 1]] * 4]


def test_lengths_do_not_count() -> None:
    x = torch.tensor([[1.0, 0.0], [100.0, 1.0], [0.5, 0.5], [0.0, 3.0]])
    assert nearest_neighbors(x, 1)[0].tolist() == [1, 0, 1, 2]
