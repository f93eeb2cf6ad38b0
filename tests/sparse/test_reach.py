"""The surroundings of some nodes: exactly what their outputs depend on."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsebo.data import load
from gsebo.errors import InvalidInput
from gsebo.graph import Topology, canonicalise
from gsebo.sparse import Pattern
from gsebo.tape import Reach
from gsebo.tape.trace import leading_rows


def random_pattern(size: int, entries: int, seed: int) -> Pattern:
    generator = torch.Generator().manual_seed(seed)
    position = torch.randint(size, (2, entries), generator=generator)
    return Pattern.from_positions(*position, size)


def dense(pattern: Pattern, values: torch.Tensor) -> torch.Tensor:
    matrix = values.new_zeros(pattern.num_rows, pattern.num_columns)
    position = (pattern.row_of_entry, pattern.column_of_entry)
    return matrix.index_put(position, values, accumulate=True)


@given(
    size=st.integers(1, 12),
    entries=st.integers(0, 40),
    outputs=st.integers(0, 6),
    depth=st.integers(0, 4),
    everywhere_from=st.none() | st.integers(1, 4),
    seed=st.integers(0, 999),
)
@settings(deadline=None)
def test_propagation_inside_the_reach_is_that_of_the_whole(
    size: int,
    entries: int,
    outputs: int,
    depth: int,
    everywhere_from: int | None,
    seed: int,
) -> None:
    pattern = random_pattern(size, entries, seed)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(size, generator=generator)[: min(outputs, size)]
    values = torch.rand(entries, generator=generator, dtype=torch.float64)
    x = torch.rand(size, 3, generator=generator, dtype=torch.float64)
    reach = Reach(pattern, chosen, depth, everywhere_from)
    if everywhere_from is not None:
        assert all(each == size for each in reach.sizes[everywhere_from:])
    assert len(reach.sizes) == depth + 1 and len(reach.blocks) == depth
    assert reach.sizes == sorted(reach.sizes)
    assert reach.order[: reach.sizes[0]].tolist() == chosen.tolist()
    assert len(set(reach.order.tolist())) == reach.order.numel() == reach.sizes[-1]
    whole, part = x, x[reach.order]
    for block in reversed(reach.blocks):
        whole = dense(pattern, values) @ whole
        part = dense(block.pattern, values[block.entries]) @ part
    torch.testing.assert_close(part, whole[chosen])


def test_only_what_is_connected_is_reached() -> None:
    path = Pattern.from_positions(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), 9)
    reach = Reach(path, torch.tensor([0]), 2)
    assert reach.order.tolist() == [0, 1, 2]
    assert reach.sizes == [1, 2, 3]
    assert [block.entries.tolist() for block in reach.blocks] == [[0], [0, 1]]


def test_blocks_are_shared_once_everything_is_reached() -> None:
    pattern = random_pattern(30, 200, 0)
    reach = Reach(pattern, torch.arange(30), 3)
    assert reach.order.tolist() == list(range(30))
    assert reach.blocks[0] is reach.blocks[1] is reach.blocks[2]


def test_rows_are_taken_in_their_order() -> None:
    pattern = random_pattern(6, 20, 1)
    values = torch.arange(20.0)
    rows = torch.tensor([4, 0, 5])
    block = leading_rows(pattern, rows)
    torch.testing.assert_close(
        dense(block.pattern, values[block.entries]), dense(pattern, values)[rows]
    )


def test_bad_input_is_refused() -> None:
    square = random_pattern(5, 9, 0)
    with pytest.raises(InvalidInput, match="given twice"):
        Reach(square, torch.tensor([1, 1]), 1)
    flat = Pattern.from_positions(torch.tensor([0]), torch.tensor([2]), 2, 3)
    with pytest.raises(InvalidInput, match="expected a square one"):
        Reach(flat, torch.tensor([0]), 1)


def test_the_example_in_the_documentation(shared: Path) -> None:
    data = load("pubmed", data_dir=shared)
    graph = Topology.of(canonicalise(data), self_loops=True, device="cpu")
    labelled = data.train_mask.nonzero().squeeze(-1)
    reach = Reach(graph.pattern, labelled, 2)
    text = (Path(__file__).parents[2] / "docs/how/speed.md").read_text("utf-8")
    said = f"{len(labelled)} labelled nodes of PubMed depends on {reach.sizes[-1]:,} of"
    assert f"{said} its {data.num_nodes:,}" in " ".join(text.split())
