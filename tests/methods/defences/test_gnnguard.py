"""GNNGuard: weights by similarity, anew in each layer."""

import pytest
import torch
from torch import Tensor

from gsebo import GNNGuard, InvalidInput
from gsebo.methods.defences.gnnguard import (
    GNNGuardNet,
    guarded_weights,
    neighbor_cosine,
)
from gsebo.sparse import Pattern
from nn.examples import Example, example, run, spread

from ..examples import small_graph


def network(**options: object) -> GNNGuardNet:
    torch.manual_seed(0)
    return spread(GNNGuardNet(20, 6, 3, **options))


def matrix_of(pattern: Pattern, values: Tensor) -> Tensor:
    found = torch.zeros(pattern.num_rows, pattern.num_rows, dtype=values.dtype)
    found[pattern.row_of_entry, pattern.column_of_entry] = values
    return found


def naive(
    given: Example, h: Tensor, threshold: float, before: Tensor | None = None
) -> Tensor:
    """Row by row, as the paper says it, of edges that have a weight ``before``."""
    h = h.detach()
    found = torch.zeros(given.num_nodes, given.num_nodes, dtype=torch.float64)
    for node in range(given.num_nodes):
        sources = given.edge_index[0, given.edge_index[1] == node].tolist()
        cosine = {j: float(torch.cosine_similarity(h[node], h[j], 0)) for j in sources}
        kept = {j: each for j, each in cosine.items() if each >= threshold}
        if before is not None:
            kept = {j: each for j, each in kept.items() if before[node, j] > 0}
        for j, each in kept.items():
            total = sum(kept.values())
            share = each / total if total else 1 / len(kept)
            found[node, j] = share * len(kept) / (len(kept) + 1)
        found[node, node] = 1 / (len(kept) + 1)
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_the_weights_are_those_of_the_paper(kind: str, threshold: float) -> None:
    given = example(kind)
    h = torch.rand(given.num_nodes, 5, dtype=torch.float64)
    h[2] = 0
    pattern = given.pattern(True)
    ones = torch.ones(pattern.num_entries, dtype=torch.float64)
    cosine = neighbor_cosine(pattern, h)
    found = guarded_weights(pattern, ones, cosine, cosine >= threshold)
    torch.testing.assert_close(matrix_of(pattern, found), naive(given, h, threshold))


def test_every_row_sums_to_one_where_something_is_similar() -> None:
    given = example("undirected")
    pattern = given.pattern(True)
    h = torch.rand(given.num_nodes, 5, dtype=torch.float64) + 0.1
    ones = torch.ones(pattern.num_entries, dtype=torch.float64)
    cosine = neighbor_cosine(pattern, h)
    found = guarded_weights(pattern, ones, cosine, cosine >= 0.1)
    sums = matrix_of(pattern, found).sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_equal_features_keep_all_edges_with_equal_weights() -> None:
    given = example("undirected")
    pattern = given.pattern(True)
    h = torch.ones(given.num_nodes, 4, dtype=torch.float64)
    ones = torch.ones(pattern.num_entries, dtype=torch.float64)
    cosine = neighbor_cosine(pattern, h)
    found = guarded_weights(pattern, ones, cosine, cosine >= 0.99)
    expected = 1 / pattern.row_counts.double()[pattern.row_of_entry]
    torch.testing.assert_close(found, expected)


def test_sparse_features_have_the_same_cosines() -> None:
    given = example("undirected")
    pattern = given.pattern(True)
    dense = neighbor_cosine(pattern, given.x)
    torch.testing.assert_close(neighbor_cosine(pattern, given.sparse_x), dense)


def test_each_layer_looks_at_its_own_input_and_at_edges_that_are_left() -> None:
    given, model = example("undirected"), network()
    first, last = model.layers
    before = naive(given, given.x, 0.1)
    hidden = (before @ given.x @ first.weight + first.bias).relu()
    expected = naive(given, hidden, 0.1, before) @ hidden @ last.weight + last.bias
    again = naive(given, hidden, 0.1) @ hidden @ last.weight + last.bias
    assert not torch.allclose(expected, again)
    torch.testing.assert_close(run(model, given, given.x), expected)


def test_memory_mixes_in_the_layer_before() -> None:
    given, model = example("undirected"), network(memory=True)
    with torch.no_grad():
        model.gate.fill_(0.4)
    share = float(torch.tensor(0.4).sigmoid())
    first, last = model.layers
    before = naive(given, given.x, 0.1)
    hidden = (before @ given.x @ first.weight + first.bias).relu()
    mixed = share * before + (1 - share) * naive(given, hidden, 0.1, before)
    expected = mixed @ hidden @ last.weight + last.bias
    torch.testing.assert_close(run(model, given, given.x), expected, atol=1e-7, rtol=0)
    with torch.no_grad():
        model.gate.fill_(-1e9)
    forgetful = network()
    forgetful.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(
        run(model, given, given.x), run(forgetful, given, given.x)
    )
    assert network(memory=True, num_layers=1).gate is None


def test_gradients_by_strengths_equal_finite_differences() -> None:
    given, model = example("directed", num_nodes=8, num_edges=12), network(threshold=0)
    pattern = given.pattern(True)
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(8, 20, generator=generator, dtype=torch.float64)
    start = torch.rand(pattern.num_entries, generator=generator, dtype=torch.float64)

    def logits(strength: Tensor) -> Tensor:
        return model(x, pattern, strength)

    assert torch.autograd.gradcheck(logits, (start + 0.2).requires_grad_())


def test_the_derivative_of_an_absent_edge_is_what_adding_it_does() -> None:
    """Also where a node had no neighbors at all before."""
    given = example("undirected")
    pattern = given.pattern(True)
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(given.num_nodes, 6, generator=generator, dtype=torch.float64)
    cosine, loop = neighbor_cosine(pattern, x), given.edge_index.shape[1]
    strength = torch.ones(pattern.num_entries, dtype=torch.float64)
    strength[:4] = 0
    alone = pattern.row_of_entry[6]
    strength[:loop][pattern.row_of_entry[:loop] == alone] = 0

    def outputs(strength: Tensor) -> Tensor:
        weights = guarded_weights(pattern, strength, cosine, cosine >= 0.1)
        return matrix_of(pattern, weights) @ x

    by_strength = torch.autograd.functional.jacobian(outputs, strength)
    step = 1e-7
    for entry in (strength == 0).nonzero()[:, 0].tolist():
        more = strength.clone()
        more[entry] = step
        change = (outputs(more) - outputs(strength)) / step
        torch.testing.assert_close(
            by_strength[..., entry], change, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("threshold", [-0.1, 1, True, "half"])
def test_a_threshold_is_a_share(threshold: object) -> None:
    with pytest.raises(InvalidInput, match="expected 0 <= threshold < 1"):
        GNNGuard(backbone_options={"threshold": threshold}).fit(small_graph())
