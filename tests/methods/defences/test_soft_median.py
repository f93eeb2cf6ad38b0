"""The soft median lies between the sum of neighbors and their median."""

import pytest
import torch
from torch import Tensor

from gsebo import InvalidInput, SoftMedian
from gsebo.methods.defences.soft_median import (
    SoftMedianNet,
    median_entries,
    soft_median,
)
from gsebo.nn.gcn import GCN
from gsebo.sparse import CompletePattern, Pattern, spmm
from nn.examples import example, run, spread

from ..examples import small_graph


def drawn(pattern: Pattern, channels: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Strengths, some of them zero, and numbers of each node."""
    generator = torch.Generator().manual_seed(seed)
    entries = pattern.num_entries
    strength = torch.rand(entries, generator=generator, dtype=torch.float64)
    strength[torch.rand(entries, generator=generator) < 0.2] = 0
    shape = (pattern.num_columns, channels)
    return strength, torch.randn(shape, generator=generator, dtype=torch.float64)


def rows_of(pattern: Pattern, strength: Tensor) -> list[list[tuple[int, float]]]:
    """Columns and strengths of each row, zeros left out."""
    found: list[list[tuple[int, float]]] = [[] for _ in range(pattern.num_rows)]
    positions = zip(
        pattern.row_of_entry.tolist(),
        pattern.column_of_entry.tolist(),
        strength.tolist(),
        strict=True,
    )
    for row, column, each in positions:
        if each > 0:
            found[row].append((column, each))
    return found


def naive_median(entries: list[tuple[int, float]], x: Tensor) -> Tensor:
    """Channel by channel: the first that has half of the weight behind it."""
    total = sum(weight for _, weight in entries)
    found = []
    for channel in x.unbind(1):
        behind = 0.0
        for column, weight in sorted(entries, key=lambda each: float(channel[each[0]])):
            behind += weight
            if behind >= total * (0.5 - 1e-6):
                found.append(channel[column])
                break
    return torch.stack(found)


def naive(pattern: Pattern, strength: Tensor, x: Tensor, temperature: float) -> Tensor:
    out = torch.zeros(pattern.num_rows, x.shape[1], dtype=x.dtype)
    for row, entries in enumerate(rows_of(pattern, strength)):
        if not entries:
            continue
        median = naive_median(entries, x)
        columns = [column for column, _ in entries]
        weights = torch.tensor([weight for _, weight in entries], dtype=x.dtype)
        distance = (x[columns] - median).norm(dim=1) / x.shape[1] ** 0.5
        close = (-distance / temperature).softmax(0) * weights
        out[row] = weights.sum() * (close / close.sum()) @ x[columns]
    return out


kinds = pytest.mark.parametrize("kind", ["undirected", "directed"])


@kinds
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.2, 3.0])
def test_it_equals_the_formula(kind: str, loops: bool, temperature: float) -> None:
    pattern = example(kind).pattern(loops)
    strength, x = drawn(pattern, 4)
    found = soft_median(pattern, strength, x, temperature)
    torch.testing.assert_close(found, naive(pattern, strength, x, temperature))


def test_on_all_pairs_it_is_the_same() -> None:
    sparse = example("directed").pattern(True)
    strength, x = drawn(sparse, 4)
    dense = CompletePattern(sparse.num_rows, "cpu")
    values = torch.zeros(sparse.num_rows, sparse.num_rows, dtype=torch.float64)
    values[sparse.row_of_entry, sparse.column_of_entry] = strength
    torch.testing.assert_close(
        soft_median(dense, dense.values(values), x, 0.3),
        soft_median(sparse, strength, x, 0.3),
    )


@kinds
def test_hot_it_is_the_sum_over_neighbors(kind: str) -> None:
    given = example(kind)
    pattern = given.pattern(True)
    strength, x = drawn(pattern, 5)
    torch.testing.assert_close(
        soft_median(pattern, strength, x, 1e12), spmm(pattern, strength, x)
    )
    torch.manual_seed(0)
    gcn = spread(GCN(20, 6, 3))
    robust = SoftMedianNet(20, 6, 3, temperature=1e5).double()
    robust.load_state_dict(gcn.state_dict())
    torch.testing.assert_close(
        run(robust, given, given.x), run(gcn, given, given.x), rtol=0, atol=1e-4
    )


@kinds
def test_cold_it_is_the_weighted_median(kind: str) -> None:
    pattern = example(kind).pattern(True)
    strength, x = drawn(pattern, 1)
    found = soft_median(pattern, strength, x, 1e-9)
    for row, entries in enumerate(rows_of(pattern, strength)):
        total = sum(weight for _, weight in entries)
        expected = total * naive_median(entries, x) if entries else x.new_zeros(1)
        torch.testing.assert_close(found[row], expected)


def test_of_two_equal_halves_the_smaller_is_the_median() -> None:
    pattern = Pattern.from_positions(torch.tensor([0, 0]), torch.tensor([0, 1]), 1, 2)
    x = torch.tensor([[3.0, -1.0], [2.0, 5.0]])
    for nudge in (-1e-9, 0.0, 1e-9):
        strength = torch.tensor([0.3, 0.3 + nudge], dtype=torch.float64)
        entry = median_entries(pattern, strength, x.mT)
        assert entry.tolist() == [[1], [0]]


@kinds
def test_a_strength_of_zero_is_no_edge(kind: str) -> None:
    pattern = example(kind).pattern(True)
    strength, x = drawn(pattern, 4)
    kept = strength > 0
    fewer = Pattern.from_positions(
        pattern.row_of_entry[kept], pattern.column_of_entry[kept], pattern.num_rows
    )
    torch.testing.assert_close(
        soft_median(pattern, strength, x, 0.01),
        soft_median(fewer, strength[kept], x, 0.01),
    )


def test_an_absent_edge_to_the_median_itself_stays_finite() -> None:
    """Far from all others, what is there must not be rounded to nothing."""
    rows, columns = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2])
    pattern = Pattern.from_positions(rows, columns, 1, 3)
    x = torch.tensor([[0.0, 0.0], [1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    strength = torch.tensor([0.0, 0.5, 0.5], requires_grad=True)
    out = soft_median(pattern, strength, x, 0.2)
    gradients = torch.autograd.grad(out.sum(), [strength, x])
    assert bool(out.isfinite().all()) and float(out.detach().abs().max()) > 0
    assert all(bool(each.isfinite().all()) for each in gradients)


def test_a_far_neighbor_cannot_move_it_far() -> None:
    """A sum follows an outlier as far as it goes."""
    rows, columns = torch.zeros(6, dtype=torch.int64), torch.arange(6)
    pattern = Pattern.from_positions(rows, columns, 1, 6)
    strength = torch.full((6,), 1 / 6, dtype=torch.float64)
    x = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(1)
    for far in (1e2, 1e4, 1e6):
        x[5] = far
        assert 0 <= float(soft_median(pattern, strength, x, 0.2)) <= 1
        assert float(spmm(pattern, strength, x)) > far / 7


@kinds
def test_gradients_equal_finite_differences(kind: str) -> None:
    pattern = example(kind, num_nodes=8, num_edges=12).pattern(True)
    strength, x = drawn(pattern, 3)
    # At a strength of zero there is no smaller one.
    strength = strength + 0.05

    def found(strength: Tensor, x: Tensor) -> Tensor:
        return soft_median(pattern, strength, x, 0.4)

    inputs = (strength.requires_grad_(), x.requires_grad_())
    assert torch.autograd.gradcheck(found, inputs)
    assert torch.autograd.gradgradcheck(found, inputs)


def test_the_derivative_of_an_absent_edge_is_what_adding_it_does() -> None:
    pattern = example("undirected").pattern(True)
    strength, x = drawn(pattern, 3)
    absent = int((strength == 0).nonzero()[0])
    step = 1e-7
    leaf = strength.clone().requires_grad_()
    (found,) = torch.autograd.grad(soft_median(pattern, leaf, x, 0.4).sum(), leaf)
    more = strength.clone()
    more[absent] = step
    change = soft_median(pattern, more, x, 0.4) - soft_median(pattern, strength, x, 0.4)
    assert float(found[absent]) == pytest.approx(float(change.sum()) / step, rel=1e-4)


def test_no_edges_at_all() -> None:
    nowhere = torch.empty(0, dtype=torch.int64)
    pattern = Pattern.from_positions(nowhere, nowhere, 3)
    found = soft_median(pattern, torch.empty(0), torch.ones(3, 2), 0.2)
    assert torch.equal(found, torch.zeros(3, 2))


@pytest.mark.parametrize("temperature", [0, -1, "cold"])
def test_the_temperature_is_positive(temperature: object) -> None:
    with pytest.raises(InvalidInput, match="expected 1e-06 <= temperature < 1e"):
        SoftMedian(backbone_options={"temperature": temperature}).fit(small_graph())
