"""Edge lists become the graph that the package makes of them in memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.folder.tables import (
    Rows,
    canonical_edges,
    edge_rows,
    names_in,
    text_of,
    write_parquet,
)
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.formats.edge_sort import EdgeSorter
from gsebo.errors import InputWarning, InvalidInput


def largest(rows: Rows) -> int:
    return max(max(row) for row in rows) + 1


@settings(max_examples=50)
@given(
    rows=edge_rows,
    delimiter=st.sampled_from("\t,; "),
    end=st.sampled_from(["\n", "\r\n"]),
    header=st.booleans(),
    mark=st.booleans(),
    blank=st.integers(0, 3),
    cut=st.booleans(),
    undirected=st.booleans(),
    run_edges=st.integers(1, 9),
    block_bytes=st.integers(1, 40),
)
def test_any_text_file(
    rows,
    delimiter,
    end,
    header,
    mark,
    blank,
    cut,
    undirected,
    run_edges,
    block_bytes,
    tmp_path_factory,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    text = "\ufeff" * mark + f"source{delimiter}target{end}" * header
    text += text_of(rows, delimiter, end)
    text = text.removesuffix(end) if cut else text + end * blank
    (folder / "edges.txt").write_bytes(text.encode())
    options = TableOptions(
        undirected=undirected, run_edges=run_edges, block_bytes=block_bytes
    )
    graph = convert_tables(folder / "edges.txt", folder / "g", options=options)
    graph.verify()
    edges = graph.to_data().edge_index.numpy()
    np.testing.assert_array_equal(
        edges, canonical_edges(rows, largest(rows), undirected)
    )
    facts = graph.manifest.facts
    loops = sum(source == target for source, target in rows)
    assert (facts["edges_read"], facts["self_loops_dropped"]) == (len(rows), loops)
    kept = (len(rows) - loops) * (1 + undirected)
    assert facts["duplicates_merged"] == kept - graph.manifest.num_edges
    assert names_in(folder) == ["edges.txt", "g"]


@settings(max_examples=20)
@given(rows=edge_rows, wide=st.booleans(), run_edges=st.integers(1, 9))
def test_any_parquet_file(rows, wide, run_edges, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("any")
    source, target = np.array(rows, np.int64 if wide else np.uint16).T
    write_parquet(folder / "e.parquet", a=source, since=source / 2, b=target)
    options = TableOptions(ends=("a", "b"), run_edges=run_edges)
    graph = convert_tables(folder / "e.parquet", folder / "g", options=options)
    np.testing.assert_array_equal(
        graph.to_data().edge_index, canonical_edges(rows, largest(rows))
    )


def test_weights_are_not_left_out_in_silence(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target,weight\n0,1,0.5\n1,0,2\n")
    with pytest.warns(InputWarning, match="'weight' of .*edges.csv is left out"):
        folder = convert_tables(tmp_path / "edges.csv", tmp_path / "g")
    assert "edge_weight" not in folder.to_data()


@settings(max_examples=40)
@given(rows=edge_rows, run_edges=st.integers(1, 9), undirected=st.booleans())
def test_the_first_repeated_row_is_named(
    rows, run_edges, undirected, tmp_path_factory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "edges.csv").write_text("source,target\n" + text_of(rows))
    seen: dict[object, int] = {}
    expected = None
    for line, (source, target) in enumerate(rows, 2):
        edge = frozenset((source, target)) if undirected else (source, target)
        if source != target and seen.setdefault(edge, line) != line:
            expected = f"line {line} of .* of line {seen[edge]}:"
            break
    options = TableOptions(
        duplicates="error", run_edges=run_edges, undirected=undirected
    )
    out = folder / "g"
    if expected is None:
        convert_tables(folder / "edges.csv", out, options=options).verify()
        return
    with pytest.raises(InvalidInput, match=expected):
        convert_tables(folder / "edges.csv", out, options=options)
    assert names_in(folder) == ["edges.csv"]


@given(
    keys=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=200),
    run_edges=st.integers(1, 50),
)
def test_sorting_on_disk_is_sorting(keys, run_edges, tmp_path_factory) -> None:
    sorter = EdgeSorter(tmp_path_factory.mktemp("runs"), run_edges=run_edges)
    for source, target in keys:
        sorter.add(np.array([source]), np.array([target]))
    found = [
        (t, s)
        for sources, targets in sorter.merged()
        for s, t in zip(sources.tolist(), targets.tolist(), strict=True)
    ]
    assert found == sorted({(target, source) for source, target in keys})


def test_memory_does_not_grow_with_the_edges(tmp_path: Path) -> None:
    rows, nodes = 300_000, 2000
    generator = np.random.default_rng(0)
    # Most of the edges go into one node: to divide them by target would not do.
    target = generator.integers(nodes, size=rows) * (generator.random(rows) < 0.1)
    ends = np.stack([generator.integers(nodes, size=rows), target], axis=1)
    (tmp_path / "edges.csv").write_text(text_of(ends.tolist()))
    options = TableOptions(run_edges=2**14, block_bytes=2**14)
    # The first conversion imports.
    (tmp_path / "one.csv").write_text("0,1\n")
    convert_tables(tmp_path / "one.csv", tmp_path / "one", options=options)
    tracemalloc.start()
    try:
        graph = convert_tables(tmp_path / "edges.csv", tmp_path / "g", options=options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert graph.manifest.facts["edges_read"] == rows
    assert peak < 8 * rows / 2


def test_the_number_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1\n")
    options = TableOptions(num_nodes=4)
    graph = convert_tables(tmp_path / "e.csv", tmp_path / "g", options=options)
    assert graph.manifest.num_nodes == 4
    assert torch.equal(
        graph.to_data().x, torch.tensor([0, 1, 0, 0]).log1p().unsqueeze(1)
    )
