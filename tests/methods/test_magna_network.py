"""MAGNA against dense matrices: attention of the top k, diffusion, normalisation."""

import pytest
import torch
from hypothesis import given as draw
from hypothesis import settings
from hypothesis import strategies as st
from tests.nn.examples import (
    CLASSES,
    FEATURES,
    KINDS,
    SIZES,
    assert_equal,
    example,
    run,
)
from tests.nn.examples import spread as moved_from_zero
from torch import Tensor
from torch.nn.functional import leaky_relu

from gsebo.errors import InvalidInput
from gsebo.methods.baselines.magna import (
    DeviationNorm,
    MAGNABlock,
    MAGNANet,
    among_largest,
    diffuse,
    dropped_pairs,
)
from gsebo.sparse import CompletePattern, Noise, Pattern, dropout, edge_softmax

kinds = pytest.mark.parametrize("kind", KINDS)
HEADS, CHANNELS = 2, 3


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def dense(pattern: Pattern, values: Tensor, missing: float = 0.0) -> Tensor:
    """Values ``[..., entries]`` as matrices, rows = targets."""
    shape = (*values.shape[:-1], pattern.num_rows, pattern.num_columns)
    matrix = values.new_full(shape, missing)
    matrix[..., pattern.row_of_entry, pattern.column_of_entry] = values
    return matrix


def attention_on(pattern: Pattern) -> Tensor:
    return edge_softmax(pattern, 2 * random(HEADS, pattern.num_entries, seed=1))


@kinds
@pytest.mark.parametrize("hops", [1, 4])
def test_diffusion_of_few_hops_equals_the_dense_recursion(kind: str, hops: int) -> None:
    pattern = example(kind).pattern(self_loops=True)
    attention = attention_on(pattern)
    start = random(HEADS, pattern.num_rows, CHANNELS)
    matrix, expected = dense(pattern, attention), start
    for _ in range(hops):
        expected = 0.8 * matrix @ expected + 0.2 * start
    assert_equal(diffuse(pattern, attention, start, hops=hops, teleport=0.2), expected)


@kinds
@pytest.mark.parametrize("teleport", [0.15, 0.5])
def test_diffusion_converges_to_the_dense_solve(kind: str, teleport: float) -> None:
    """a (I - (1 - a) A)^-1 Z0, also where strengths let rows sum to less than one."""
    pattern = example(kind).pattern(self_loops=True)
    attention = attention_on(pattern)
    start = random(HEADS, pattern.num_rows, CHANNELS)
    for weighed in (attention, attention * random(pattern.num_entries).sigmoid()):
        system = torch.eye(pattern.num_rows) - (1 - teleport) * dense(pattern, weighed)
        expected = teleport * torch.linalg.solve(system, start)
        found = diffuse(pattern, weighed, start, hops=400, teleport=teleport)
        assert_equal(found, expected)
        near = diffuse(pattern, weighed, start, hops=3, teleport=teleport)
        assert not torch.allclose(near, expected)


def test_every_hop_draws_its_own_dropout() -> None:
    pattern = example("directed").pattern(self_loops=True)
    attention = attention_on(pattern)
    start = random(HEADS, pattern.num_rows, CHANNELS)
    noise, expected, drawn = Noise(3, 4), start, []
    for hop in range(3):
        kept = dropout(attention, 0.5, noise, 70 + 2 * hop)
        drawn.append(kept)
        mixed = 0.8 * dense(pattern, kept) @ expected + 0.2 * start
        expected = dropout(mixed, 0.3, noise, 70 + 2 * hop + 1)
    rates = {"attention_dropout": 0.5, "dropout_rate": 0.3}
    options = {"hops": 3, "teleport": 0.2, **rates, "noise": noise, "site": 70}
    assert_equal(diffuse(pattern, attention, start, **options), expected)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


@draw(data=st.data(), count=st.integers(1, 6), distinct=st.booleans())
@settings(max_examples=40)
def test_the_largest_of_each_row(data, count: int, distinct: bool) -> None:
    """Against a loop over rows; small whole numbers make ties, which are all kept."""
    nodes = data.draw(st.integers(1, 7))
    positions = data.draw(
        st.lists(
            st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)),
            unique=True,
            min_size=0,
            max_size=30,
        )
    )
    rows, columns = torch.tensor(positions, dtype=torch.int64).view(-1, 2).T
    pattern = Pattern.from_positions(rows, columns, nodes)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    scores = (
        torch.rand(HEADS, len(positions), generator=generator)
        if distinct
        else torch.randint(3, (HEADS, len(positions)), generator=generator).float()
    )
    kept = among_largest(pattern, scores, count)
    for head in range(HEADS):
        for row in range(nodes):
            own, chosen = scores[head, rows == row], kept[head, rows == row]
            if len(own) == 0:
                continue
            smallest = own.sort(descending=True).values[: min(count, len(own))][-1]
            assert torch.equal(chosen, own >= smallest)
            if distinct:
                assert chosen.sum() == min(count, len(own))


def test_dropped_pairs_go_together_and_loops_stay() -> None:
    pattern = example("undirected", 40, 400).pattern(self_loops=True)
    row, column = pattern.row_of_entry, pattern.column_of_entry
    like = torch.empty(0)
    shares, seen = [], []
    for step in range(50):
        dropped = dropped_pairs(pattern, 0.2, Noise(0, step), 5, like)
        assert dropped is not None
        matrix = dense(pattern, dropped.double())
        assert torch.equal(matrix, matrix.T)
        assert not dropped[row == column].any()
        shares.append(dropped[row != column].double().mean())
        seen.append(dropped)
    # 25 000 pairs are drawn: four deviations are 0.01.
    assert abs(torch.stack(shares).mean() - 0.2) < 0.012
    assert not torch.equal(seen[0], seen[1])
    again = dropped_pairs(pattern, 0.2, Noise(0, 1), 5, like)
    assert again is not None
    assert torch.equal(again, seen[1])
    assert dropped_pairs(pattern, 0.2, None, 5, like) is None
    assert dropped_pairs(pattern, 0.0, Noise(0, 1), 5, like) is None


def test_one_direction_may_be_dropped_alone_where_there_is_no_other() -> None:
    pattern = example("directed", 40, 400).pattern(self_loops=True)
    dropped = dropped_pairs(pattern, 0.5, Noise(0, 0), 5, torch.empty(0))
    assert dropped is not None
    matrix = dense(pattern, dropped.double())
    stored = dense(pattern, torch.ones(pattern.num_entries))
    both = (stored > 0) & (stored.T > 0)
    assert torch.equal(matrix[both], matrix.T[both])
    assert matrix[~both].any()


def normalised(norm: DeviationNorm, h: Tensor) -> Tensor:
    centred = h - h.mean(1, keepdim=True)
    divisor = h.std(1, keepdim=True, correction=1) + 1e-6
    return norm.scale * centred / divisor + norm.shift


def dense_block(
    block: MAGNABlock, h: Tensor, edges: Tensor, strength: Tensor
) -> Tensor:
    """The formulas on n x n matrices, one head after the other."""
    mixed = []
    attention = block.attention
    message = normalised(block.input_norm, h) @ block.weight
    for own, weight in zip(
        message.chunk(attention.heads, dim=1), attention.attention, strict=True
    ):
        target, source = (own.tanh() @ weight).T
        scores = leaky_relu(target[:, None] + source[None, :], 0.2)
        scores = scores.masked_fill(~edges, -torch.inf)
        count = min(attention.top_k, len(h))
        smallest = scores.topk(count, dim=1).values[:, -1:]
        share = scores.masked_fill(scores < smallest, -torch.inf).softmax(1) * strength
        z = own
        for _ in range(attention.hops):
            z = (1 - attention.teleport) * share @ z + attention.teleport * own
        mixed.append(z)
    around = h if block.residual is None else h @ block.residual
    r = around + torch.cat(mixed, dim=1) @ block.output
    deep = block.feed_forward
    wide = (normalised(block.norm, r) @ deep.first + deep.first_bias).relu()
    return r + wide @ deep.second + deep.second_bias


def dense_output(model: MAGNANet, h: Tensor, edges: Tensor, strength: Tensor) -> Tensor:
    for block in model.blocks:
        h = dense_block(block, h, edges, strength)
    return h @ model.weight + model.bias


@kinds
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("top_k", [2, 5, 100])
def test_network_equals_dense_formulas(kind: str, heads: int, top_k: int) -> None:
    given = example(kind)
    model = moved_from_zero(MAGNANet(*SIZES, heads=heads, top_k=top_k, hops=3))
    pattern = given.pattern(self_loops=True)
    strengths = random(pattern.num_entries).sigmoid()
    edges = dense(pattern, torch.ones(pattern.num_entries)) > 0
    # The spread of a row of zeros has no derivative in torch, but it has a value.
    expected = dense_output(model, given.x, edges, dense(pattern, strengths))
    assert_equal(run(model, given, given.x, strengths=strengths), expected)
    layers = [strengths, strengths]
    assert_equal(
        run(model, given, given.x, strengths=lambda number, h: layers[number]), expected
    )


def test_runs_on_a_complete_graph() -> None:
    given = example("directed")
    model = moved_from_zero(MAGNANet(*SIZES, heads=2, top_k=4))
    nodes = given.num_nodes
    strengths = random(nodes, nodes).sigmoid()
    edges = torch.ones(nodes, nodes, dtype=torch.bool)
    found = model(given.x, CompletePattern(nodes, "cpu"), strengths.flatten())
    assert_equal(found, dense_output(model, given.x, edges, strengths))
    model(given.x, CompletePattern(nodes, "cpu"), noise=Noise(0, 0))


def test_dropped_edges_get_no_attention() -> None:
    """With nearly every pair dropped a node sees only itself, at the first hop too."""
    given = example("undirected")
    options = {"attention_dropout": 0.0, "feed_forward_dropout": 0.0, "heads": 2}
    model = MAGNANet(*SIZES, dropout=0.0, edge_dropout=1 - 1e-9, **options).double()
    lonely = type(given)(given.edge_index[:, :0], given.x, given.y)
    assert_equal(
        run(model, given, given.x, noise=Noise(0, 0)), run(model, lonely, given.x)
    )


def test_equal_widths_need_no_linear_way_around() -> None:
    given = example("undirected")
    model = moved_from_zero(MAGNANet(FEATURES, FEATURES, CLASSES, heads=4))
    assert all(block.residual is None for block in model.blocks)
    assert_equal(run(model, given, given.sparse_x), run(model, given, given.x))


@pytest.mark.parametrize("channels", [1, 2, 7])
def test_normalisation_is_torch_s_deviation_and_finite(channels: int) -> None:
    norm = DeviationNorm(channels).double()
    with torch.no_grad():
        norm.scale.normal_()
        norm.shift.normal_()
    h = random(5, channels)
    if channels > 1:
        assert_equal(norm(h), normalised(norm, h))
    h[2] = 4.0
    h.requires_grad_()
    out = norm(h)
    assert_equal(out[2], norm.shift)
    weighed = out * random(5, channels, seed=3)
    (slope,) = torch.autograd.grad(weighed.sum(), h, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), h, allow_unused=True)
    assert slope.isfinite().all()
    assert curvature.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 4}, "hidden_channels=6 given with heads=4; expected a multiple"),
        ({"heads": 0}, "heads=0 given; expected an integer >= 1"),
        ({"hops": 1.5}, "hops=1.5 given; expected an integer"),
        ({"top_k": True}, "top_k=True given; expected an integer"),
        ({"teleport": -0.1}, "teleport=-0.1 given; expected 0 <= teleport < 1"),
        ({"edge_dropout": 1.0}, "edge_dropout=1.0 given; expected 0 <="),
        ({"attention_dropout": None}, "attention_dropout=None given"),
        ({"feed_forward_dropout": "some"}, "feed_forward_dropout='some' given"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MAGNANet(*SIZES, **{"heads": 2} | options)


def test_defaults_are_the_published_ones() -> None:
    block = MAGNANet(FEATURES, 16, CLASSES).blocks[0]
    found = block.attention
    assert (found.heads, found.hops, found.teleport, found.top_k) == (8, 4, 0.15, 5)
    assert (found.dropout, found.attention_dropout) == (0.25, 0.5)
    assert block.feed_forward.dropout == 0.1
