"""APPNP and GCNII are those of PyG at the initial strengths."""

import pytest
import torch
import torch_geometric.nn as pyg

from gsebo.nn import APPNP, GCNII

from .examples import KINDS, SIZES, assert_equal, example, run, spread


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("hops", "alpha"), [(10, 0.1), (1, 0.0), (3, 0.7)])
def test_appnp_equals_pyg(kind: str, sparse: bool, hops: int, alpha: float) -> None:
    given, model = example(kind), spread(APPNP(*SIZES, hops=hops, alpha=alpha))
    alone = model.mlp(given.x, given.pattern(self_loops=False))
    expected = pyg.APPNP(hops, alpha)(alone, given.edge_index)
    features = given.sparse_x if sparse else given.x
    assert_equal(run(model, given, features), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("layers", "alpha", "theta"), [(8, 0.1, 0.5), (1, 0.0, 1.5), (3, 0.5, 1.0)]
)
def test_gcnii_equals_pyg(
    kind: str, sparse: bool, layers: int, alpha: float, theta: float
) -> None:
    options = {"num_layers": layers, "alpha": alpha, "theta": theta}
    given, model = example(kind), spread(GCNII(*SIZES, **options))
    h = first = torch.relu(model.projection(given.x))
    for number, weight in enumerate(model.weights, start=1):
        conv = pyg.GCN2Conv(SIZES[1], alpha, theta, number).double()
        with torch.no_grad():
            conv.weight1.copy_(weight)
        h = torch.relu(conv(h, first, given.edge_index))
    features = given.sparse_x if sparse else given.x
    assert_equal(run(model, given, features), model.classifier(h))


def test_defaults_are_those_of_the_papers() -> None:
    appnp, gcnii = APPNP(*SIZES), GCNII(*SIZES)
    assert (appnp.hops, appnp.alpha, appnp.num_propagations) == (10, 0.1, 10)
    assert (gcnii.alpha, gcnii.theta, gcnii.num_propagations) == (0.1, 0.5, 2)


def test_everything_is_kept_without_propagation() -> None:
    """With no strength left, a node of APPNP says a vanishing share of its own."""
    given, model = example("directed"), spread(APPNP(*SIZES, hops=4, alpha=0.25))
    pattern = given.pattern(self_loops=True)
    silent = torch.zeros(pattern.num_entries, dtype=torch.float64)
    alone = model.mlp(given.x, pattern)
    assert_equal(model(given.x, pattern, silent), 0.25 * alone)
