"""Sparse operators on a GPU against the time that their memory traffic takes at least.

The graph is random with degrees that follow a power law of exponent 2.5, its entries in
the order of the rows. ``.T`` is the operator on the transposed pattern.

The floor counts every byte once at 4.3 TB/s, what an H200 reaches when it copies:
numbers in and out, a row of the dense matrix for each entry that gathers one, and one
index per entry. Through the transpose single numbers lie scattered, so each costs the
32 bytes of a memory sector, and the permutation is read as well. Times are medians of
replayed CUDA graphs with a cold cache. Every result is compared with the reference
kernels first.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.failure import BenchmarkError
from benchmarks.records import Records
from gsebo.sparse import Noise, Pattern
from gsebo.sparse.operators import kernels_for
from gsebo.sparse.reference import REFERENCE_KERNELS

BYTES_PER_MILLISECOND = 4.3e9
SECTOR = 32
INDEX = 4
REPEATS = 30
# More than the cache holds; reading it leaves nothing of the operands there.
FLUSH_BYTES = 256 * 2**20


class Size(NamedTuple):
    """One problem."""

    nodes: int
    edges: int
    channels: int
    batch: int


SIZES = {
    "small": [Size(2708, 13_264, 16, 10), Size(169_343, 2_315_598, 64, 1)],
    "20m": [Size(1_000_000, 20_000_000, 64, 1)],
    "124m": [Size(2_449_029, 123_718_280, 64, 1)],
}


class Operator(NamedTuple):
    """A call, what it should give, and the bytes it has to move."""

    name: str
    call: Callable[[], Tensor]
    expected: Callable[[], Tensor]
    bytes: int


def power_law(size: Size) -> Pattern:
    """Random pattern whose row and column counts have a tail of exponent 2.5."""
    generator = torch.Generator("cuda").manual_seed(0)
    uniform = torch.rand(2, size.edges, device="cuda", generator=generator)
    # Node k has a weight of k ** (-2 / 3); this inverts their cumulative sum.
    ends = (uniform**3 * size.nodes).long().clamp_(max=size.nodes - 1)
    shuffled = torch.randperm(size.nodes, device="cuda", generator=generator)
    rows, columns = shuffled[ends]
    order = torch.argsort(rows * size.nodes + columns)
    return Pattern.from_positions(rows[order], columns[order], size.nodes)


def operators(size: Size, dtype: torch.dtype) -> Iterator[Operator]:
    """Make every operator at one size."""
    nodes, edges, channels, batch = size
    pattern = power_law(size)
    kernels = kernels_for(torch.empty(0, device="cuda", dtype=dtype))

    def normal(*shape: int) -> Tensor:
        return torch.randn(batch, *shape, device="cuda", dtype=dtype)

    values, node = normal(edges), normal(nodes)
    a, b = normal(nodes, channels), normal(nodes, channels)
    number = dtype.itemsize
    dense = batch * nodes * channels * number
    gather = batch * edges * channels * number
    for suffix, view in (("", pattern), (".T", pattern.T)):
        # What it costs to read or write one number per entry.
        one = batch * edges * (SECTOR if suffix else number)
        permutation = edges * INDEX if suffix else 0
        index = edges * INDEX
        yield Operator(
            f"spmm{suffix}",
            lambda view=view: kernels.spmm(view, values, b),
            lambda view=view: by_channels(
                lambda part: REFERENCE_KERNELS.spmm(view, values, b[..., part]),
                channels,
            ),
            gather + index + permutation + one + dense,
        )
        yield Operator(
            f"sddmm{suffix}",
            lambda view=view: kernels.sddmm(view, a, b),
            lambda view=view: sum(
                REFERENCE_KERNELS.sddmm(view, a[..., part], b[..., part])
                for part in torch.arange(channels, device="cuda").split(8)
            ),
            gather + index + permutation + one + dense,
        )
        yield Operator(
            f"row_sum{suffix}",
            lambda view=view: kernels.row_sum(view, values),
            lambda view=view: REFERENCE_KERNELS.row_sum(view, values),
            index + one + batch * nodes * number,
        )
        # Written in entry order; it is the numbers of the rows that lie scattered.
        scattered = batch * (edges * SECTOR if suffix else nodes * number)
        yield Operator(
            f"row_expand{suffix}",
            lambda view=view: kernels.row_expand(view, node),
            lambda view=view: REFERENCE_KERNELS.row_expand(view, node),
            index + batch * edges * number + scattered,
        )
        yield Operator(
            f"edge_softmax{suffix}",
            lambda view=view: kernels.edge_softmax(view, values),
            lambda view=view: REFERENCE_KERNELS.edge_softmax(view, values),
            index + 2 * one,
        )
    mask = (a.numel(), 2**31, Noise(1, 2).keys(3), a)
    yield Operator(
        "keep_mask",
        lambda: kernels.keep_mask(*mask),
        lambda: REFERENCE_KERNELS.keep_mask(*mask),
        a.numel() * number,
    )


def by_channels(call: Callable[[Tensor], Tensor], channels: int) -> Tensor:
    """Put a result together from a few channels at a time, which takes less memory."""
    parts = torch.arange(channels, device="cuda").split(8)
    return torch.cat([call(part) for part in parts], -1)


def check(operator: Operator) -> None:
    """Compare a result with the reference, within float error."""
    out, expected = operator.call(), operator.expected()
    error = float(torch.linalg.vector_norm(out - expected))
    error /= float(torch.linalg.vector_norm(expected))
    allowed = 1e-5 if out.dtype == torch.float32 else 1e-12
    if not error <= allowed:
        raise SystemExit(f"{operator.name} is off by {error:.1e}")


def milliseconds(call: Callable[[], object], flush: Tensor) -> float:
    """Median time of a captured call that finds none of its operands in the cache."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.amax()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument(
        "--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), help="of graphs"
    )
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every operator at every size."""
    if not torch.cuda.is_available():
        raise BenchmarkError("there is no CUDA device here: expected one.")
    dtype = getattr(torch, arguments.dtype)
    flush = torch.rand(FLUSH_BYTES // 4, device="cuda")
    for size in (size for name in arguments.sizes for size in SIZES[name]):
        for operator in operators(size, dtype):
            check(operator)
            torch.cuda.empty_cache()
            time = milliseconds(operator.call, flush)
            floor = operator.bytes / BYTES_PER_MILLISECOND
            line = {
                "operator": operator.name,
                **size._asdict(),
                "dtype": arguments.dtype,
                "milliseconds": time,
                "floor_milliseconds": floor,
                "ratio": time / floor,
            }
            records.add(line, device="cuda")
