import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.structure import EdgeStrength

from .graphs import EDGES, NUM_NODES, examples, graph, graphs, ground

LAYERS = 3
changes = st.floats(-3, 3, width=32)
kinds = pytest.mark.parametrize("kind", EDGES)


def topology(kind: str, self_loops: bool = True) -> Topology:
    return Topology.of(
        graph(EDGES[kind], NUM_NODES), self_loops=self_loops, device="cpu"
    )


def uneven(topology: Topology, dtype: torch.dtype = torch.float64) -> Tensor:
    """A start with as many values as entries, both ends of [0, 1] among them."""
    if topology.num_entries < 2:
        return torch.full((topology.num_entries,), 0.3, dtype=dtype)
    return torch.linspace(0, 1, topology.num_entries, dtype=dtype)


def laid_over(topology: Topology, start: Tensor, **options: bool) -> EdgeStrength:
    structure = EdgeStrength(**options)
    structure.setup(ground(topology, start, LAYERS))
    return structure


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, EdgeStrength, Tensor]:
    """Any structure over any graph, and any parameters for it."""
    canonical: CanonicalGraph = draw(graphs())
    where = Topology.of(canonical, self_loops=draw(st.booleans()), device="cpu")
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    number = st.floats(0, 1, width=32)
    start = draw(
        st.lists(number, min_size=where.num_entries, max_size=where.num_entries)
    )
    names = ("per_layer", "tied", "learn_self_loops")
    structure = laid_over(
        where,
        torch.tensor(start, dtype=dtype),
        **{name: draw(st.booleans()) for name in names},
    )
    size = structure.change.numel()
    change = draw(st.lists(changes, min_size=size, max_size=size))
    return where, structure, torch.tensor(change, dtype=dtype).view_as(structure.change)


def strengths(where: Topology, structure: EdgeStrength, change: Tensor) -> Tensor:
    return torch.func.functional_call(structure, {"change": change}, (where,))


@examples
@given(cases())
def test_starts_at_the_vanilla_strengths(
    case: tuple[Topology, EdgeStrength, Tensor],
) -> None:
    where, structure, _ = case
    out = structure(where)
    lead = (LAYERS,) if structure.per_layer else ()
    assert out.shape == (*lead, where.num_entries)
    assert torch.equal(out, structure.start.expand_as(out))
    assert torch.equal(
        structure.project({"change": structure.change})["change"], structure.change
    )


@kinds
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("initial", ["uniform", "ones", "random"])
def test_other_beginnings(kind: str, tied: bool, per_layer: bool, initial: str) -> None:
    where = topology(kind)
    start = uneven(where)

    def begin(seed: int) -> tuple[EdgeStrength, Tensor]:
        torch.manual_seed(seed)
        structure = EdgeStrength(
            tied=tied, per_layer=per_layer, initial_strength=initial
        )
        structure.setup(ground(where, start, LAYERS))
        return structure, structure(where).detach()

    structure, out = begin(0)
    assert (out >= -1e-12).all() and (out <= 1 + 1e-12).all()
    assert torch.equal(out, begin(0)[1])
    assert torch.equal(
        structure.project({"change": structure.change})["change"], structure.change
    )
    if not tied:
        rows = out.reshape(-1, where.num_entries)
        assert torch.equal(rows, rows[:1].expand_as(rows))
        expected = {"uniform": start.mean(), "ones": torch.ones(())}.get(initial)
        if expected is not None:
            assert torch.allclose(out, expected.to(out).expand_as(out))
        elif where.num_entries:
            assert not torch.equal(out, begin(1)[1])


@kinds
def test_number_of_parameters(kind: str) -> None:
    where = topology(kind)
    edges, loops = where.num_edges, where.num_loops
    pairs = {"directed": 4, "undirected": 4, "no edges": 0}[kind]

    def count(**options: bool) -> list[int]:
        return list(laid_over(where, uneven(where), **options).change.shape)

    assert count() == [edges + loops]
    assert count(learn_self_loops=False) == [edges]
    assert count(tied=True) == [pairs + loops]
    assert count(tied=True, learn_self_loops=False) == [pairs]
    assert count(per_layer=True) == [LAYERS, edges + loops]
    assert count(per_layer=True, tied=True) == [LAYERS, pairs + loops]
    assert count(per_layer=True, learn_self_loops=False) == [LAYERS, edges]


@kinds
def test_a_graph_without_loops_has_no_parameters_for_them(kind: str) -> None:
    where = topology(kind, self_loops=False)
    for tied in (False, True):
        loops_learned, not_learned = (
            laid_over(where, uneven(where), tied=tied, learn_self_loops=learn)
            for learn in (True, False)
        )
        assert loops_learned.change.shape == not_learned.change.shape


@pytest.mark.parametrize("kind", ["directed", "undirected"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_tied_edges_change_together_and_nothing_else(
    kind: str, per_layer: bool
) -> None:
    where = topology(kind)
    structure = laid_over(where, uneven(where), tied=True, per_layer=per_layer)
    for k in range(structure.change.shape[-1]):
        change = torch.zeros_like(structure.change)
        change[..., k] = 0.125
        moved = (strengths(where, structure, change) - structure.start) != 0
        if per_layer:
            assert (moved == moved[0]).all()
            moved = moved[0]
        entries = moved.nonzero().squeeze(-1).tolist()
        first = entries[0]
        partner = int(where.reverse_edge[first]) if first < where.num_edges else -1
        assert entries == [first] if partner < 0 else sorted([first, partner])
    unit = strengths(where, structure, torch.ones_like(structure.change))
    assert torch.equal(unit, (structure.start + 1).expand_as(unit))


def test_tied_pairs_keep_their_difference() -> None:
    where = topology("undirected")
    structure = laid_over(where, uneven(where), tied=True)
    change = torch.linspace(-1, 1, structure.change.numel(), dtype=torch.float64)
    moved = strengths(where, structure, change) - structure.start
    edges = moved[: where.num_edges]
    torch.testing.assert_close(edges, edges[where.reverse_edge])


@examples
@given(cases())
def test_projection_keeps_strengths_between_zero_and_one(
    case: tuple[Topology, EdgeStrength, Tensor],
) -> None:
    where, structure, change = case
    projected = structure.project({"change": change})["change"]
    out = strengths(where, structure, projected)
    ulp = torch.finfo(out.dtype).eps
    assert (out >= 0).all()
    assert (out <= 1 + ulp).all()
    assert torch.equal(structure.project({"change": projected})["change"], projected)


@examples
@given(cases(), st.integers(0, 99))
def test_projection_is_the_nearest_allowed_point(
    case: tuple[Topology, EdgeStrength, Tensor], seed: int
) -> None:
    """Allowed moves never point further away from the projection (obtuse angle)."""
    where, structure, change = case
    projected = structure.project({"change": change})["change"]
    share = torch.rand(
        change.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(change.dtype)
    allowed = structure.lower + share * (structure.upper - structure.lower)
    out = strengths(where, structure, allowed)
    assert ((out >= -1e-6) & (out <= 1 + 1e-6)).all()
    assert (((change - projected) * (allowed - projected)) <= 1e-6).all()


@examples
@given(cases())
def test_the_box_is_as_large_as_it_can_be(
    case: tuple[Topology, EdgeStrength, Tensor],
) -> None:
    """At either end of its range a parameter holds one of its entries at 0 or 1."""
    where, structure, _ = case
    learned = where.num_entries if structure.learn_self_loops else where.num_edges
    for bound, end in ((structure.lower, 0.0), (structure.upper, 1.0)):
        out = strengths(where, structure, bound.expand_as(structure.change))
        touching = (out[..., :learned] - end).abs() < 1e-6
        owner = structure.owner
        if owner is None:
            assert touching.all()
        else:
            lead = touching[0] if structure.per_layer else touching
            assert set(owner[lead].tolist()) == set(range(bound.numel()))


@examples
@given(cases())
def test_untied_projection_clips_the_strengths(
    case: tuple[Topology, EdgeStrength, Tensor],
) -> None:
    where, structure, change = case
    if structure.tied:
        return
    before = strengths(where, structure, change)
    after = strengths(where, structure, structure.project({"change": change})["change"])
    torch.testing.assert_close(after, before.clamp(0, 1))


@kinds
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("per_layer", [False, True])
def test_fixed_loops_never_move(kind: str, tied: bool, per_layer: bool) -> None:
    where = topology(kind)
    structure = laid_over(
        where, uneven(where), tied=tied, per_layer=per_layer, learn_self_loops=False
    )
    out = strengths(where, structure, torch.full_like(structure.change, 0.37))
    loops = structure.start[where.num_edges :]
    assert torch.equal(out[..., where.num_edges :], loops.expand(*out.shape[:-1], -1))
    edges = (structure.start + 0.37)[: where.num_edges]
    assert torch.equal(out[..., : where.num_edges], edges.expand(*out.shape[:-1], -1))


@examples
@given(cases())
def test_gradient_counts_the_entries_of_each_parameter(
    case: tuple[Topology, EdgeStrength, Tensor],
) -> None:
    where, structure, _ = case
    out = structure(where)
    (gradient,) = torch.autograd.grad(out.sum(), structure.change)
    learned = where.num_entries if structure.learn_self_loops else where.num_edges
    layers = LAYERS if structure.per_layer else 1
    assert (gradient >= 1).all()
    assert float(gradient.sum()) == learned * layers


def test_gradient_reaches_an_entry_that_was_clipped() -> None:
    """A clamp in the forward pass would cut it off for good."""
    where = topology("directed")
    structure = laid_over(where, uneven(where))
    low = structure.project({"change": torch.full_like(structure.change, -5)})["change"]
    low.requires_grad_()
    (gradient,) = torch.autograd.grad(strengths(where, structure, low).sum(), low)
    assert torch.equal(gradient, torch.ones_like(low))


def test_dtype_and_state_travel_with_the_module() -> None:
    where = topology("undirected")
    structure = laid_over(where, uneven(where), tied=True).float()
    assert structure(where).dtype == torch.float32
    assert structure.owner is not None
    assert structure.owner.dtype == torch.int64
    assert [name for name, _ in structure.named_parameters()] == ["change"]


def test_a_second_setup_forgets_the_first() -> None:
    structure = EdgeStrength(tied=True)
    for kind in ("undirected", "directed"):
        where = topology(kind)
        structure.setup(ground(where, uneven(where), LAYERS))
        assert torch.equal(structure(where), uneven(where))
