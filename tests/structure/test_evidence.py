"""Evidence of edges against dense formulas, and what it does not depend on."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity

from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import Pattern, SparseFeatures
from gsebo.structure.evidence import (
    Features,
    FeatureWeights,
    WholeGraphEdges,
    evidence_columns,
    evidence_of,
)

from .graphs import EDGES, NUM_NODES, examples, graph, graphs

CHANNELS = 6
OURS = evidence_columns("all")
FORMS = pytest.mark.parametrize("form", ["dense", "sparse"])


def words(num_nodes: int, seed: int = 0) -> Tensor:
    """Few words for each node, and the last node without any."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_nodes, CHANNELS)
    x = torch.rand(shape, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(shape, generator=generator) < 0.5)
    x[-1] = 0
    return x


def in_form(x: Tensor, form: str) -> Features:
    if form == "dense":
        return x
    rows, columns = x.nonzero().unbind(1)
    pattern = Pattern.from_positions(rows, columns, *x.shape)
    return SparseFeatures(pattern, x[rows, columns])


def pattern_of(edge_index: Tensor, num_nodes: int) -> Pattern:
    source, target = edge_index
    return Pattern.from_positions(target, source, num_nodes)


def columns_of(
    edge_index: Tensor, x: Tensor, form: str = "dense", given: Tensor | None = None
) -> dict[str, Tensor]:
    """Columns by their names."""
    features = in_form(x, form)
    known = pattern_of(edge_index if given is None else given, len(x))
    weights = FeatureWeights.of(features)
    source, target = edge_index
    seen = WholeGraphEdges(features, weights, source, target, given=known)
    found = evidence_of(seen)
    assert found.shape == (edge_index.shape[1], len(OURS))
    return dict(zip(OURS, found.unbind(1), strict=True))


def adjacency(edge_index: Tensor, num_nodes: int) -> Tensor:
    a = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    source, target = edge_index
    a[target, source] = 1
    return a


@FORMS
@examples
@given(where=graphs(), other=graphs())
def test_the_columns_are_the_dense_formulas(
    form: str, where: CanonicalGraph, other: CanonicalGraph
) -> None:
    size = max(where.num_nodes, other.num_nodes)
    x, asked, given = words(size), where.edge_index, other.edge_index
    source, target = asked
    found = columns_of(asked, x, form, given)
    a = adjacency(given, size)
    degree = a.sum(1)
    inverse = torch.diag(1 / degree.clamp(min=1))
    expected = {
        "cosine": cosine_similarity(x[source], x[target], dim=1),
        "target_degree": (degree[target] + 1).log(),
        "source_degree": (degree[source] + 1).log(),
        "common": ((a @ a.T)[target, source] + 1).log(),
        "allocation": (a @ inverse @ a.T)[target, source],
    }
    for name, column in expected.items():
        torch.testing.assert_close(found[name], column, msg=lambda m, n=name: n + m)


def test_rare_words_count_more() -> None:
    """Nodes 0 and 1 share a word that all have, 2 and 3 one of their own."""
    x = torch.zeros(6, 4, dtype=torch.float64)
    x[:, 0] = 1
    x[[2, 3], 1] = x[0, 2] = x[1, 3] = 1
    asked = torch.tensor([[0, 2], [1, 3]])
    usual, special = columns_of(asked, x, "sparse")["rarity"]
    assert float(usual) == pytest.approx(0, abs=1e-12)
    assert float(special) == pytest.approx(1)


@examples
@given(where=graphs(), seed=st.integers(0, 99))
def test_rarity_is_the_cosine_of_the_weighed_words(
    where: CanonicalGraph, seed: int
) -> None:
    x = words(where.num_nodes, seed)
    source, target = where.edge_index
    present = (x != 0).double()
    weighed = present * ((len(x) + 1) / (present.sum(0) + 1)).log()
    expected = cosine_similarity(weighed[source], weighed[target], dim=1)
    found = columns_of(where.edge_index, x, "sparse")["rarity"]
    torch.testing.assert_close(found, expected)
    centred = (x - x.mean(0)) / x.std(0, correction=0).where(
        x.std(0, correction=0) > 0, torch.inf
    )
    expected = cosine_similarity(centred[source], centred[target], dim=1)
    found = columns_of(where.edge_index, x, "dense")["rarity"]
    torch.testing.assert_close(found, expected)


@FORMS
@examples
@given(where=graphs(), seed=st.integers(0, 99))
def test_names_of_nodes_do_not_count(
    form: str, where: CanonicalGraph, seed: int
) -> None:
    size = where.num_nodes
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    x = words(size)
    moved = torch.empty_like(x)
    moved[order] = x
    here = columns_of(where.edge_index, x, form)
    there = columns_of(order[where.edge_index], moved, form)
    for name in OURS:
        torch.testing.assert_close(there[name], here[name])


@pytest.mark.parametrize("kind", EDGES)
def test_edges_that_are_only_asked_about_change_nothing(kind: str) -> None:
    """Candidates count neither as degrees nor as common neighbors."""
    given, x = graph(EDGES[kind], NUM_NODES).edge_index, words(NUM_NODES)
    alone = columns_of(given, x)
    more = torch.tensor([[4, 0, 4], [1, 4, 3]])
    together = columns_of(torch.cat([given, more], 1), x, given=given)
    for name in OURS:
        assert torch.equal(together[name][: given.shape[1]], alone[name])


@FORMS
def test_other_graphs_are_weighed_alike_in_either_form(form: str) -> None:
    """How many zeros another graph has decides its form, not what it means."""
    weights = FeatureWeights.of(in_form(words(9), form))
    other = words(5, seed=1)

    def weighed(new_form: str) -> Tensor:
        found = weights.weigh(in_form(other, new_form))
        return found if isinstance(found, Tensor) else found.to_dense()

    torch.testing.assert_close(weighed("sparse"), weighed("dense"))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1000.7])
def test_a_constant_feature_says_nothing(value: float) -> None:
    features = torch.full((1000, 1), value)
    assert not FeatureWeights.of(features).scale.any()
