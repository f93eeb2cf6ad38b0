"""On the complete pattern every operator is its dense counterpart."""

import pytest
import torch

from gsebo.sparse import (
    CompletePattern,
    Noise,
    Pattern,
    edge_softmax,
    reference_kernels,
    row_expand,
    row_sum,
    sddmm,
    spmm,
    uniform,
)

SIZE, CHANNELS = 4, 3


def listed() -> Pattern:
    """The same positions in the same order, as an ordinary pattern."""
    every = torch.arange(SIZE * SIZE)
    return Pattern.from_positions(every // SIZE, every % SIZE, SIZE)


@pytest.fixture(params=[False, True], ids=["rows", "columns"])
def patterns(request: pytest.FixtureRequest) -> tuple[Pattern, Pattern]:
    complete, sparse = CompletePattern(SIZE, "cpu"), listed()
    return (complete.T, sparse.T) if request.param else (complete, sparse)


def random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_positions_agree(patterns: tuple[Pattern, Pattern]) -> None:
    complete, sparse = patterns
    assert complete.num_entries == sparse.num_entries
    for name in ("indptr", "columns", "entries", "rows", "row_counts"):
        assert torch.equal(
            getattr(complete, name).long(), getattr(sparse, name).long()
        ), name
    assert torch.equal(complete.row_of_entry, sparse.row_of_entry)
    assert torch.equal(complete.column_of_entry, sparse.column_of_entry)
    assert complete.T.T is complete
    assert complete.to("cpu").num_entries == complete.num_entries


@pytest.mark.parametrize("lead", [(), (2,)])
def test_operators_agree(patterns: tuple[Pattern, Pattern], lead: tuple) -> None:
    complete, sparse = patterns
    values, x = random(*lead, SIZE * SIZE), random(*lead, SIZE, CHANNELS)
    rows = random(*lead, SIZE)
    calls = [
        lambda pattern: spmm(pattern, values, x),
        lambda pattern: sddmm(pattern, x, x + 1),
        lambda pattern: row_sum(pattern, values),
        lambda pattern: row_expand(pattern, rows),
        lambda pattern: edge_softmax(pattern, values),
    ]
    for call in calls:
        torch.testing.assert_close(call(complete), call(sparse))


def test_uniform_numbers_are_uniform_open_and_repeatable() -> None:
    like = torch.empty(0)
    drawn = uniform((200, 500), Noise(3, 4), 5, like)
    assert drawn.shape == (200, 500) and drawn.dtype == torch.float32
    assert 0 < float(drawn.min()) < 1e-3 and 0.999 < float(drawn.max()) < 1
    counts = torch.histc(drawn, bins=10, min=0, max=1)
    assert float((counts - 10_000).abs().max()) < 500
    assert torch.equal(drawn, uniform((200, 500), Noise(3, 4), 5, like))
    assert not torch.equal(drawn, uniform((200, 500), Noise(3, 4), 6, like))
    assert not torch.equal(drawn, uniform((200, 500), Noise(3, 5), 5, like))
    # A longer draw begins like a shorter one, whatever the chunks.
    longer = uniform((2_000_000,), Noise(3, 4), 5, like)
    assert torch.equal(longer[:100_000], drawn.flatten())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_kernels_draw_the_same(dtype: torch.dtype) -> None:
    arguments = ((5000,), Noise(2**40, 7), 1001, torch.empty(0, dtype=dtype))
    fast = uniform(*arguments)
    with reference_kernels():
        assert torch.equal(uniform(*arguments), fast)


def test_the_largest_hash_is_still_below_one() -> None:
    for dtype, bits in ((torch.float32, 23), (torch.float64, 32)):
        largest = (torch.tensor(2**bits - 1).to(dtype) + 0.5) / 2**bits
        assert largest < 1
