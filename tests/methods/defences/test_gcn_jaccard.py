"""GCN-Jaccard removes edges between dissimilar nodes, and is vanilla otherwise."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import GCNJaccard, InvalidInput, Vanilla
from gsebo.methods.defences.gcn_jaccard import edge_similarity
from gsebo.sparse import make_features

from ..examples import small_graph, with_fields

OPTIONS = {"hidden_channels": 8, "max_epochs": 12, "random_state": 0, "device": "cpu"}


def binary(data: Data, share: float = 0.3) -> Data:
    """The same graph with zeros and ones as features, some nodes without any."""
    x = (data.x > data.x.quantile(1 - share)).float()
    x[:3] = 0
    return with_fields(data, x=x)


def naive(x: Tensor, edges: Tensor) -> list[float]:
    found = []
    for source, target in edges.T.tolist():
        one, other = (
            set(x[source].nonzero()[:, 0].tolist()),
            set(x[target].nonzero()[:, 0].tolist()),
        )
        found.append(len(one & other) / max(len(one | other), 1))
    return found


@pytest.mark.parametrize("share", [0.1, 0.6], ids=["sparse", "dense"])
def test_the_jaccard_similarity_is_that_of_sets(share: float) -> None:
    data = binary(small_graph(), share)
    features = make_features(data.x, torch.float32, "cpu")
    assert isinstance(features, Tensor) == (share == 0.6)
    found = edge_similarity(features, data.edge_index)
    assert found.tolist() == pytest.approx(naive(data.x, data.edge_index))
    # Whichever numbers stand for what is there.
    scaled = make_features(data.x * 0.37, torch.float32, "cpu")
    assert torch.equal(edge_similarity(scaled, data.edge_index, "jaccard"), found)


def test_other_numbers_are_compared_by_their_cosine() -> None:
    data = small_graph()
    x = data.x.double().clone()
    x[5] = 0
    expected = torch.cosine_similarity(x[data.edge_index[0]], x[data.edge_index[1]])
    found = edge_similarity(x, data.edge_index)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found, edge_similarity(x, data.edge_index.flip(0)))
    assert torch.equal(found, edge_similarity(x, data.edge_index, "cosine"))


def test_blocks_of_edges_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_graph()
    whole = edge_similarity(data.x, data.edge_index)
    monkeypatch.setattr("gsebo.methods.defences.gcn_jaccard._BLOCK", 40)
    assert torch.equal(edge_similarity(data.x, data.edge_index), whole)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_below_zero_it_is_the_vanilla_network(backbone: str) -> None:
    data = binary(small_graph())
    vanilla = Vanilla(backbone, **OPTIONS).fit(data)
    found = GCNJaccard(backbone, threshold=-1, **OPTIONS).fit(data)
    assert torch.equal(found.probability_, vanilla.probability_)
    assert torch.equal(found.strength_, vanilla.strength_)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_it_is_the_vanilla_network_without_those_edges(backbone: str) -> None:
    data = binary(small_graph())
    kept = torch.tensor(naive(data.x, data.edge_index)) > 0.2
    assert 0 < int(kept.sum()) < data.num_edges
    fewer = with_fields(data, edge_index=data.edge_index[:, kept])
    vanilla = Vanilla(backbone, **OPTIONS).fit(fewer)
    found = GCNJaccard(backbone, threshold=0.2, **OPTIONS).fit(data)
    assert torch.equal(found.probability_, vanilla.probability_)
    assert torch.equal(found.strength_[kept], vanilla.strength_)
    assert not found.strength_[~kept].any()


def test_at_the_threshold_an_edge_goes() -> None:
    data = binary(small_graph())
    alike = edge_similarity(data.x, data.edge_index)
    threshold = float(np.median(alike[alike > 0]))
    assert bool((alike == threshold).any())
    found = GCNJaccard(threshold=threshold, **OPTIONS).fit(data)
    assert torch.equal(found.strength_ > 0, alike > threshold)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_all_edges_may_go(backbone: str) -> None:
    found = GCNJaccard(backbone, threshold=1, **OPTIONS).fit(binary(small_graph()))
    assert not found.strength_.any()
    assert bool(found.probability_.isfinite().all())


@pytest.mark.parametrize("threshold", [-1.5, 2, "much"])
def test_a_similarity_is_at_most_one(threshold: object) -> None:
    with pytest.raises(InvalidInput, match="expected -1 <= threshold <= 1"):
        GCNJaccard(threshold=threshold).fit(small_graph())
