"""The whole graph as a batch, and what every sampler's batches have in common."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import Batch, ClusterSampler, NeighborSampler, Sampler
from gsebo.sparse import numba_compile
from gsebo.sparse.numba_compile import kernel_threads

from .graphs import (
    check,
    cora,
    examples,
    graphs_and_nodes,
    parts,
    random_graph,
    same,
    seeds_of,
    targets,
)

SAMPLERS = [
    NeighborSampler(2),
    NeighborSampler((-1, 3)),
    ClusterSampler(num_parts=None, clusters_per_batch=2),
    ClusterSampler(num_parts=1),
]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=str)


def test_the_whole_graph() -> None:
    arrays = cora()
    batch = Batch.full(arrays, np.flatnonzero(arrays.val)[::-1])
    check(batch, arrays)
    assert torch.equal(batch.nodes, torch.arange(arrays.num_nodes))
    assert torch.equal(batch.edges, torch.arange(arrays.num_edges))
    source, target = batch.edge_index.numpy()
    assert np.array_equal(source, arrays.source)
    assert np.array_equal(target, targets(arrays))
    assert (batch.scale == 1).all()
    assert np.array_equal(batch.seeds, np.flatnonzero(arrays.val))


@every_sampler
@examples
@given(graphs_and_nodes(), st.integers(1, 30), st.integers(0, 2**40))
def test_batches_of_random_graphs(sampler: Sampler, given, size, seed) -> None:
    arrays, nodes = given
    bound = sampler.bind(arrays, num_layers=2, batch_size=size, seed=seed)
    for number in (0, 1, 7):
        batch = bound.batch(nodes, number)
        check(batch, arrays)
        assert np.isin(seeds_of(batch), nodes).all()
        assert same(batch, bound.batch(nodes, number))
    batches = list(bound.cover(nodes))
    assert len(batches) == bound.batches_in_pass(nodes)
    for batch in batches:
        check(batch, arrays)
    together = np.concatenate([seeds_of(batch) for batch in batches])
    assert np.array_equal(np.sort(together), np.sort(nodes))


@every_sampler
def test_a_batch_is_a_function_of_seed_and_number(sampler: Sampler) -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    sizes = {"num_layers": 2, "batch_size": 50}
    one = sampler.bind(arrays, **sizes, seed=3)
    other = sampler.bind(arrays, **sizes, seed=3)
    forwards = [one.batch(nodes, number) for number in range(5)]
    backwards = [other.batch(nodes, number) for number in range(4, -1, -1)][::-1]
    assert all(same(*pair) for pair in zip(forwards, backwards, strict=True))
    covers = zip(one.cover(nodes), other.cover(nodes), strict=True)
    assert all(same(*pair) for pair in covers)


@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=str)
def test_seeds_and_numbers_differ(sampler: Sampler) -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    sizes = {"num_layers": 2, "batch_size": 50}
    one, other = (sampler.bind(arrays, **sizes, seed=seed) for seed in (3, 4))
    assert not same(one.batch(nodes, 0), one.batch(nodes, 1))
    assert not same(one.batch(nodes, 0), other.batch(nodes, 0))


@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=str)
def test_threads_do_not_matter(sampler: Sampler, monkeypatch) -> None:
    arrays = random_graph(1000, 10000)
    nodes = np.arange(arrays.num_nodes)
    bound = sampler.bind(arrays, num_layers=2, batch_size=200, seed=0)
    with kernel_threads(1):
        alone = [bound.batch(nodes, number) for number in range(3)]
    # Little work would run on one thread even where there are two.
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", -1)
    with kernel_threads(2):
        shared = [bound.batch(nodes, number) for number in range(3)]
    assert all(same(*pair) for pair in zip(alone, shared, strict=True))


@every_sampler
def test_mapped_arrays_give_the_same_and_stay_as_they_are(
    sampler: Sampler, tmp_path: Path
) -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    held = {"indptr": arrays.indptr, "source": arrays.source}
    for name, array in held.items():
        np.save(tmp_path / name, array)
    before = [(tmp_path / f"{name}.npy").read_bytes() for name in held]
    mapped = GraphArrays(
        *(
            np.load(tmp_path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in held
        ),
        arrays.x,
    )
    sizes = {"num_layers": 2, "batch_size": 30, "seed": 0}
    from_memory, from_file = (
        sampler.bind(arrays, **sizes),
        sampler.bind(mapped, **sizes),
    )
    for number in range(3):
        batch = from_file.batch(nodes, number)
        assert same(batch, from_memory.batch(nodes, number))
        # What a batch holds is its own: it may be written to, and nothing else changes.
        for part in parts(batch):
            part += 1
        mapped.release()
    covers = zip(from_file.cover(nodes), from_memory.cover(nodes), strict=True)
    assert all(same(*pair) for pair in covers)
    assert before == [(tmp_path / f"{name}.npy").read_bytes() for name in held]


@every_sampler
def test_what_cannot_be_used_is_named(sampler: Sampler) -> None:
    arrays = cora()
    for sizes, message in [
        ({"num_layers": 2, "batch_size": 0}, "batch_size is 0"),
        ({"num_layers": -1, "batch_size": 1}, "num_layers is -1"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            sampler.bind(arrays, **sizes, seed=0)
    bound = sampler.bind(arrays, num_layers=2, batch_size=30, seed=0)
    for nodes, message in [
        ([], "no nodes"),
        ([0, 2708], "0 to 2708"),
        ([-1, 5], "-1 to 5"),
        ([7, 3, 7], "node 7 given twice"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            bound.batch(np.array(nodes, np.int64), 0)
    assert list(bound.cover(np.array([], np.int64))) == []
