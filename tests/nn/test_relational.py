"""Networks of relations, on graphs with several types of nodes and edges."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, leaky_relu
from torch_geometric.nn import RGCNConv

from gsebo.errors import InvalidInput
from gsebo.graph import Graph, Topology
from gsebo.graph.topology import canonicalise
from gsebo.nn.base import Backbone
from gsebo.nn.han import HAN
from gsebo.nn.relational import RelationalBackbone, RelationalGCN, by_relation
from gsebo.sparse import Noise, Pattern, make_features

from .examples import assert_equal, spread

SIZES = (7, 6, 3)
# Type of the source and of the target of each relation; the third has no edges, and
# the last joins the same nodes as the one before.
RELATIONS = ((0, 1), (1, 0), (1, 1), (0, 0), (0, 0))
KINDS = torch.tensor([0] * 6 + [1] * 5)


def typed_pattern() -> Pattern:
    """Edges of four of five relations between two types of nodes, and self-loops."""
    generator = torch.Generator().manual_seed(3)
    edges, numbers = [], []
    for number, (one, other) in enumerate(RELATIONS):
        if number == 2:
            continue
        ends = [(kind == KINDS).nonzero().squeeze(-1) for kind in (one, other)]
        pairs = torch.cartesian_prod(*ends)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        # So that some nodes hear nothing in some relation.
        chosen = torch.randperm(len(pairs), generator=generator)[:7]
        if number == 4:
            chosen = torch.arange(len(pairs))
        edges.append(pairs[chosen].T)
        numbers.append(torch.full((len(chosen),), number))
    graph = Graph(
        edge_index=torch.cat(edges, dim=1),
        node_type=KINDS,
        edge_type=torch.cat(numbers),
        num_nodes=len(KINDS),
        meta={
            "node_types": ["a", "b"],
            "edge_types": [
                ["ab"[one], f"r{number}", "ab"[other]]
                for number, (one, other) in enumerate(RELATIONS)
            ],
        },
    )
    return Topology.of(canonicalise(graph), self_loops=True, device="cpu").pattern


def features() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(len(KINDS), SIZES[0], generator=generator, dtype=torch.float64)
    return x * (torch.rand(x.shape, generator=generator) < 0.5)


def prepared(model: RelationalBackbone) -> Backbone:
    torch.manual_seed(0)
    model.prepare(features(), typed_pattern(), SIZES[2])
    return spread(model)


def edges_of(pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Edges and their relations, without self-loops."""
    edges = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
    kept = edges[0] != edges[1]
    return edges[:, kept], pattern.types.edge_type[kept]


def test_relations_partition_the_edges() -> None:
    pattern = typed_pattern()
    edges, relation = edges_of(pattern)
    parts = by_relation(pattern)
    assert [part.target for part in parts] == [other for _, other in RELATIONS]
    entries = torch.cat([part.entries for part in parts])
    assert torch.equal(entries.sort().values, torch.arange(edges.shape[1]))
    for number, part in enumerate(parts):
        sources = part.sources[part.pattern.column_of_entry]
        ends = torch.stack([sources, part.pattern.row_of_entry])
        assert torch.equal(ends, edges[:, relation == number])
        assert len(part.sources) == len(ends[0].unique())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("num_bases", [0, 1, 3])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_relational_gcn_equals_pyg(
    num_layers: int, num_bases: int, sparse: bool
) -> None:
    model = prepared(RelationalGCN(*SIZES, num_layers=num_layers, num_bases=num_bases))
    pattern, x = typed_pattern(), features()
    edges, relation = edges_of(pattern)
    expected = x
    for number, bias in enumerate(model.biases):
        conv = RGCNConv(
            expected.shape[1], len(bias), len(RELATIONS), num_bases or None
        ).double()
        with torch.no_grad():
            conv.weight.copy_(model.bases[number])
            conv.root.copy_(model.self_weights[number])
            conv.bias.copy_(bias)
            if num_bases:
                conv.comp.copy_(model.shares[number])
        expected = conv(expected.relu() if number else expected, edges, relation)
    given = make_features(x, x.dtype, "cpu") if sparse else x
    assert_equal(model(given, pattern), expected)


@pytest.mark.parametrize("heads", [1, 2])
def test_han_equals_its_formula(heads: int) -> None:
    model = prepared(HAN(*SIZES, heads=heads, relation_channels=4))
    pattern, h = typed_pattern(), features()
    edges, relation = edges_of(pattern)
    generator = torch.Generator().manual_seed(1)
    strength = torch.rand(pattern.num_entries, generator=generator, dtype=h.dtype)
    expected = h
    for layer in range(2):
        message = (expected @ model.maps[layer]).view(len(KINDS), heads, -1)
        found = []
        for number in range(len(RELATIONS)):
            z = torch.zeros_like(message)
            vector = model.attentions[layer][number]
            for node in range(len(KINDS)):
                chosen = (edges[1] == node) & (relation == number)
                near = edges[0][chosen]
                if not len(near):
                    continue
                pairs = (vector[..., 0] * message[node]).sum(-1)
                pairs = pairs + (vector[..., 1] * message[near]).sum(-1)
                share = leaky_relu(pairs, 0.2).softmax(0)
                share = share * strength[: edges.shape[1]][chosen][:, None]
                z[node] = (share[..., None] * message[near]).sum(0)
            found.append(z.flatten(1))
        out = expected @ model.self_weights[layer]
        out = out * strength[edges.shape[1] :, None]
        compared, query = model.compared[layer], model.queries[layer]
        for kind in (0, 1):
            own = [n for n, (_, target) in enumerate(RELATIONS) if target == kind]
            scores = torch.stack(
                [(compared(found[n][kind == KINDS]).tanh() @ query).mean() for n in own]
            )
            for n, share in zip(own, scores.softmax(0), strict=True):
                out = out + share * found[n]
        expected = elu(out + model.biases[layer])
    assert_equal(model(h, pattern, strength), model.classifier(expected))


@pytest.mark.parametrize("kind", [RelationalGCN, HAN])
def test_a_strength_of_zero_is_an_edge_that_is_not_there(kind: type) -> None:
    model = prepared(kind(*SIZES))
    pattern = typed_pattern()
    whole = model.initial_strength(pattern)
    assert whole.shape == (pattern.num_entries,)
    none = whole.clone()
    count = len(by_relation(pattern))
    none[pattern.types.edge_type < count] = 0
    out = model(features(), pattern, none)
    changed = features()
    changed[0] += 1
    other = model(changed, pattern, none)
    # Nothing comes from node 0 but to itself; attention to relations is of all nodes,
    # and there is nothing to attend to.
    assert not torch.allclose(out[0], other[0])
    assert_equal(out[1:], other[1:])


@pytest.mark.parametrize("kind", [RelationalGCN, HAN])
def test_dropout_is_of_the_seed_and_the_step(kind: type) -> None:
    model, pattern = prepared(kind(*SIZES)), typed_pattern()
    first, again, other = (
        model(features(), pattern, noise=Noise(0, step)) for step in (1, 1, 2)
    )
    assert_equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("kind", [RelationalGCN, HAN])
def test_a_graph_of_other_relations_is_refused(kind: type) -> None:
    model, pattern = kind(*SIZES), typed_pattern()
    with pytest.raises(InvalidInput, match=r"expected prepare\(features"):
        model(features(), pattern)
    model.prepare(features(), pattern, SIZES[2])
    edges = torch.arange(3)
    plain = Pattern.from_positions(edges, edges, 3)
    with pytest.raises(InvalidInput, match="with 1 relations given; expected 5"):
        model(features()[:3], plain)


@pytest.mark.parametrize("wrong", [-1, 1.5])
def test_a_wrong_number_of_bases_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidInput, match=r"num_bases=.* expected a whole number"):
        RelationalGCN(*SIZES, num_bases=wrong)
