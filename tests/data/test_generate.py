from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data import generate_graph, validate
from gsebo.errors import InvalidInput
from gsebo.graph import canonicalise


def _homophily(data: Data) -> float:
    source, target = data.edge_index
    return float((data.y[source] == data.y[target]).float().mean())


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("num_classes", [2, 7])
def test_has_the_asked_homophily_and_degrees(
    homophily: float, num_classes: int
) -> None:
    data = generate_graph(3000, homophily=homophily, num_classes=num_classes)
    degree = torch.bincount(data.edge_index[0], minlength=3000).float()
    assert abs(_homophily(data) - homophily) < 0.05
    assert abs(float(degree.mean()) / 10 - 1) < 0.15
    assert float(degree.max()) > 6 * float(degree.mean())


def test_is_a_simple_undirected_valid_graph() -> None:
    data = generate_graph(500)
    graph = canonicalise(data)
    assert graph.num_edges == data.num_edges
    assert bool((graph.reverse_edge >= 0).all())
    assert data.y.bincount().tolist() == [250, 250]
    validate(data)


def test_features_tell_the_classes_apart() -> None:
    def nearest_mean(data: Data) -> float:
        means = torch.stack([data.x[data.y == c].mean(0) for c in (0, 1)])
        guess: Tensor = torch.cdist(data.x, means).argmin(1)
        return float((guess == data.y).float().mean())

    assert nearest_mean(generate_graph(1000, feature_signal=2.0)) > 0.95
    assert nearest_mean(generate_graph(1000, feature_signal=0.0)) < 0.65


def test_seed_decides() -> None:
    first, again, other = (generate_graph(200, seed=seed) for seed in (1, 1, 2))
    for key in first.keys():  # noqa: SIM118
        assert torch.equal(first[key], again[key]), key
    assert not torch.equal(first.x, other.x)


def test_small_and_dense_graphs_are_possible() -> None:
    data = generate_graph(
        20, average_degree=15.0, homophily=0.5, split="ratio:30/30/40"
    )
    assert data.num_edges == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 3}, "num_nodes=3"),
        ({"num_classes": 1}, "num_classes=1"),
        ({"average_degree": 0.0}, "average_degree=0.0"),
        ({"average_degree": float("nan")}, "average_degree=nan"),
        ({"average_degree": 100.0}, "average_degree=100.0"),
        ({"average_degree": 60.0}, "lower average_degree"),
        ({"power_law_exponent": 2.0}, "power_law_exponent=2.0"),
        ({"homophily": 1.5}, "homophily=1.5"),
        ({"num_features": 0}, "num_features=0"),
        ({"feature_signal": -1.0}, "feature_signal=-1.0"),
        ({"seed": -1}, "seed=-1"),
        ({"split": "nonsense"}, "unknown split"),
    ],
)
def test_argument_that_makes_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        generate_graph(**{"num_nodes": 100, **arguments})
