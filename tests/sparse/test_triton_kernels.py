"""The Triton kernels against the reference.

They run on a CUDA device, or slowly in Triton's interpreter where there is none. How
rows are dealt out to them is plain torch: test_triton_schedule.py.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsebo.sparse import Noise, Pattern, edge_softmax, operators, spmm
from gsebo.sparse.backend import SparseKernels
from gsebo.sparse.numba_cpu import NUMBA_KERNELS
from gsebo.sparse.reference import REFERENCE_KERNELS
from gsebo.sparse.triton_schedule import row_of_entry

from .patterns import Positions, awkward, empty, examples, large, normal, positions
from .test_dropout import kept

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Has to be in the environment before anything imports triton, as torch may do.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = find_spec("triton") is not None
if TRITON and (ON_GPU or INTERPRETED):
    from gsebo.sparse import triton_segments
    from gsebo.sparse.triton_cuda import TRITON_KERNELS

needs_triton = pytest.mark.skipif(
    not (TRITON and (ON_GPU or INTERPRETED)),
    reason="left to test_in_the_interpreter"
    if TRITON
    else "no CUDA device and no triton here",
)
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="no CUDA device here")
# The interpreter computes with numpy, which warns where a GPU gives NaN.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def run_python(*arguments: str, **variables: str) -> None:
    environment = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="runs here already")
@pytest.mark.skipif(not TRITON, reason="no CUDA device and no triton here")
def test_in_the_interpreter() -> None:
    """All of this file, in a process that knows of it before it imports triton."""
    if tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
        pytest.skip("the interpreter before triton 3.7 does not run on numpy 2.4")
    options = ("-q", "-p", "no:cacheprovider")
    run_python("-m", "pytest", *options, __file__, TRITON_INTERPRET="1")


def hubs() -> Positions:
    """Rows of every class: empty, short, longer, and two that have to be cut."""
    counts = torch.tensor([3, 1300, 0, 129, 513, 512, 8, 9, 32, 33, 128, 0, 1])
    generator = torch.Generator().manual_seed(7)
    rows = torch.arange(len(counts)).repeat_interleave(counts)
    columns = torch.randint(11, rows.shape, generator=generator)
    order = torch.randperm(len(rows), generator=generator)
    return Positions(rows[order], columns[order], len(counts), 11)


def in_order() -> Positions:
    """The same rows with their entries in order, as a sorted graph has them."""
    given = hubs()
    rows, order = given.rows.sort(stable=True)
    return Positions(rows, given.columns[order], given.num_rows, given.num_columns)


# The interpreter takes seconds for what a GPU does in no time.
BATCHES = [(2, 2), (1, 2), (2, 1), (1, 1)] if ON_GPU else [(1, 2), (2, 1)]
PATTERNS: dict[str, Callable[[], Positions]] = {
    "awkward": awkward,
    "hubs": hubs,
    "in order": in_order,
    **({"large": large} if ON_GPU else {}),
    "no entries": lambda: empty(4, 5),
    "no rows": lambda: empty(0, 5),
    "no columns": lambda: empty(5, 0),
}


def views(name: str) -> list[Pattern]:
    pattern = PATTERNS[name]().pattern.to(DEVICE)
    return [pattern, pattern.T]


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(*shape, seed=seed, dtype=dtype).to(DEVICE)


def assert_same(out: Tensor, expected: Tensor) -> None:
    # A thousand terms in another order, some of which cancel.
    tolerance = 1e-4 if out.dtype == torch.float32 else 1e-11
    torch.testing.assert_close(
        out, expected, rtol=tolerance, atol=tolerance, equal_nan=True
    )


def check_products(pattern: Pattern, values: Tensor, a: Tensor, b: Tensor) -> None:
    expected = REFERENCE_KERNELS.spmm(pattern, values, b)
    assert_same(TRITON_KERNELS.spmm(pattern, values, b), expected)
    assert_same(
        TRITON_KERNELS.sddmm(pattern, a, b), REFERENCE_KERNELS.sddmm(pattern, a, b)
    )


def check_rows(pattern: Pattern, values: Tensor, x: Tensor) -> None:
    expected = REFERENCE_KERNELS.row_sum(pattern, values)
    assert_same(TRITON_KERNELS.row_sum(pattern, values), expected)
    out = TRITON_KERNELS.edge_softmax(pattern, values)
    assert_same(out, REFERENCE_KERNELS.edge_softmax(pattern, values))
    out = TRITON_KERNELS.row_expand(pattern, x)
    torch.testing.assert_close(
        out, REFERENCE_KERNELS.row_expand(pattern, x), rtol=0, atol=0, equal_nan=True
    )


def chosen(device: str, dtype: torch.dtype = torch.float32) -> SparseKernels:
    tensor = SimpleNamespace(device=torch.device(device), dtype=dtype)
    return operators.kernels_for(tensor)  # type: ignore[arg-type]


def test_without_triton_a_gpu_uses_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operators.has_triton.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "triton", None)
        assert chosen("cuda") is REFERENCE_KERNELS
    operators.has_triton.cache_clear()
    assert chosen("cpu") is NUMBA_KERNELS
    assert chosen("meta") is chosen("cuda", torch.float16) is REFERENCE_KERNELS


@needs_triton
def test_a_gpu_uses_triton() -> None:
    operators.has_triton.cache_clear()
    assert chosen("cuda") is chosen("cuda", torch.float64) is TRITON_KERNELS
    with operators.reference_kernels():
        assert chosen("cuda") is REFERENCE_KERNELS


def test_importing_does_not_import_triton() -> None:
    run_python("-c", "import sys, gsebo.sparse; assert 'triton' not in sys.modules")


@needs_triton
@dtypes
@pytest.mark.parametrize("channels", [0, 1, 3, 16, 64, 130])
def test_products(dtype: torch.dtype, channels: int) -> None:
    names = PATTERNS if ON_GPU or channels <= 3 else ["awkward"]
    for pattern in (view for name in names for view in views(name)):
        for left, right in BATCHES:
            values = drawn(left, pattern.num_entries, dtype=dtype)
            a = drawn(left, pattern.num_rows, channels, seed=1, dtype=dtype)
            b = drawn(right, pattern.num_columns, channels, seed=2, dtype=dtype)
            check_products(pattern, values, a, b)


@needs_triton
@dtypes
@pytest.mark.parametrize("name", PATTERNS)
def test_rows(dtype: torch.dtype, name: str) -> None:
    for pattern in views(name):
        for batch in (1, 3):
            values = drawn(batch, pattern.num_entries, dtype=dtype)
            check_rows(pattern, values, drawn(batch, pattern.num_rows, dtype=dtype))


@needs_triton
@pytest.mark.parametrize("name", ["awkward", "hubs", "in order", "no entries"])
def test_rows_of_large_graphs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short and several long segments share a program."""
    monkeypatch.setattr(triton_segments, "_AT_ONCE", 0)
    for pattern in views(name):
        values = drawn(2, pattern.num_entries)
        check_rows(pattern, values, drawn(2, pattern.num_rows))


@needs_triton
@settings(examples, max_examples=40 if ON_GPU else 8)
@given(given=positions(), seed=st.integers(0, 99))
def test_random_patterns(given: Positions, seed: int) -> None:
    for pattern in (given.pattern.to(DEVICE), given.pattern.to(DEVICE).T):
        values = drawn(2, pattern.num_entries, seed=seed)
        a = drawn(2, pattern.num_rows, 3, seed=seed + 1)
        b = drawn(1, pattern.num_columns, 3, seed=seed + 2)
        check_products(pattern, values, a, b)
        check_rows(pattern, values, a[..., 0])


@needs_triton
def test_int64_indices() -> None:
    small = hubs().pattern.to(DEVICE)
    wide = Pattern(13, 11, small.indptr, small.columns.long(), small.entries.long())
    values, a, b = drawn(1, small.num_entries), drawn(1, 13, 3), drawn(1, 11, 3)
    for pattern, left, right in ((wide, a, b), (wide.T, b, a)):
        assert row_of_entry(pattern).dtype == torch.int64
        check_products(pattern, values, left, right)
        check_rows(pattern, values, left[..., 0])


@needs_triton
def test_strided_inputs() -> None:
    pattern = awkward().pattern.to(DEVICE)
    every_other = drawn(3, 14)[:, ::2]
    turned = drawn(3, 6, 5).mT[..., ::2]
    check_products(pattern, every_other, drawn(1, 6, 4).mT[..., ::2], turned)
    check_products(pattern, drawn(1, 7).expand(3, 7), drawn(3, 4, 3), turned)
    check_rows(pattern, every_other, drawn(4, 3).mT)


@needs_triton
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_go_where_the_reference_sends_them(bad: float) -> None:
    names = ("awkward", "hubs", "in order")
    for pattern in (view for name in names for view in views(name)):
        values, x = drawn(1, pattern.num_entries), drawn(1, pattern.num_columns, 3)
        x[0, 0, 1] = bad
        a = drawn(1, pattern.num_rows, 3)
        check_products(pattern, values, a, x)
        # A strength of zero must not hide that a fit diverged.
        check_products(pattern, torch.zeros_like(values), a, x)
        values[0, 0] = bad
        check_products(pattern, values, a, x)
        check_rows(pattern, values, x.new_full((1, pattern.num_rows), bad))
        # Rows, and parts of rows, without any finite score.
        check_rows(pattern, torch.full_like(values, bad), a[..., 0])
        row = int(pattern.rows[pattern.entries == 0])
        first = pattern.entries[pattern.indptr[row] : pattern.indptr[row] + 450]
        values[0, first.long()] = bad
        check_rows(pattern, values, a[..., 0])


@needs_triton
def test_softmax_of_large_scores() -> None:
    for pattern in (*views("hubs"), *views("in order")):
        values = 1000 * drawn(1, pattern.num_entries)
        check_rows(pattern, values, drawn(1, pattern.num_rows))


@needs_triton
def test_the_same_bits_every_time() -> None:
    pattern = hubs().pattern.to(DEVICE)
    values = drawn(2, pattern.num_entries, dtype=torch.float32)
    x = drawn(2, 11, 16, dtype=torch.float32)
    for call in (
        lambda: TRITON_KERNELS.spmm(pattern, values, x),
        lambda: TRITON_KERNELS.row_sum(pattern, values),
        lambda: TRITON_KERNELS.edge_softmax(pattern, values),
    ):
        first = call()
        assert all(torch.equal(first, call()) for _ in range(3))


@needs_triton
@dtypes
@pytest.mark.parametrize("threshold", [1, 2**31, 2**32 - 1, 2**32])
def test_masks_are_the_same_bits(dtype: torch.dtype, threshold: int) -> None:
    like = torch.empty(0, dtype=dtype, device=DEVICE)
    for keys in (Noise(3, 4).keys(5), (0, 0), (2**32 - 1, 2**31)):
        for size in (0, 1, 1024, 2500):
            out = TRITON_KERNELS.keep_mask(size, threshold, keys, like)
            assert out.dtype == dtype
            assert torch.equal(
                out, REFERENCE_KERNELS.keep_mask(size, threshold, keys, like)
            )


def needs_memory(gibibytes: int) -> None:
    if torch.cuda.mem_get_info()[0] < gibibytes * 2**30:
        pytest.skip(f"less than {gibibytes} GiB of free GPU memory")


@needs_gpu
@needs_triton
def test_masks_beyond_32_bits() -> None:
    needs_memory(20)
    keys, size = Noise(3, 4).keys(5), 2**32 + 60
    out = TRITON_KERNELS.keep_mask(size, 2**31, keys, torch.empty(0, device=DEVICE))
    expected = [kept(size - 120 + k, keys, 2**31) for k in range(120)]
    assert (out[-120:] != 0).tolist() == expected


@needs_gpu
@needs_triton
@pytest.mark.parametrize("batch", [1, 2])
def test_offsets_beyond_31_bits(batch: int) -> None:
    """The last of 2.4 million rows with 1024 channels starts at 2.46e9."""
    needs_memory(40 * batch)
    nodes, channels = 2_400_000, 1024
    ends = torch.tensor([nodes - 1, nodes - 2, nodes - 1, 0], device=DEVICE)
    pattern = Pattern.from_positions(ends, ends.flip(0), nodes)
    x = torch.zeros(batch, nodes, channels, device=DEVICE)
    x[:, ends] = drawn(batch, 4, channels, dtype=torch.float32)
    values = drawn(1, 4, dtype=torch.float32)
    out = TRITON_KERNELS.spmm(pattern, values, x)
    small = torch.tensor([3, 2, 3, 0], device=DEVICE)
    compact = Pattern.from_positions(small, small.flip(0), 4)
    kept_rows = x[:, [0, 1, nodes - 2, nodes - 1]].contiguous()
    expected = REFERENCE_KERNELS.spmm(compact, values, kept_rows)
    assert_same(out[:, [0, 1, nodes - 2, nodes - 1]], expected)
    dots = TRITON_KERNELS.sddmm(pattern, x, x)
    assert_same(dots, REFERENCE_KERNELS.sddmm(compact, kept_rows, kept_rows))


@needs_gpu
@needs_triton
def test_calls_can_be_captured() -> None:
    """A graph that was captured once follows the numbers in its inputs."""
    pattern = hubs().pattern.to(DEVICE)
    values, x = drawn(1, pattern.num_entries), drawn(1, 11, 16)
    a, node = drawn(1, 13, 16), drawn(1, 13)

    def call() -> list[Tensor]:
        return [
            TRITON_KERNELS.spmm(pattern, values, x),
            TRITON_KERNELS.spmm(pattern.T, values, a),
            TRITON_KERNELS.sddmm(pattern, a, x),
            TRITON_KERNELS.row_sum(pattern, values),
            TRITON_KERNELS.row_expand(pattern, node),
            TRITON_KERNELS.edge_softmax(pattern, values),
        ]

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    values.normal_()
    x.normal_()
    graph.replay()
    assert all(map(torch.equal, captured, call()))


@needs_gpu
@needs_triton
def test_second_order_on_the_device() -> None:
    pattern = hubs().pattern.to(DEVICE)
    values, x = drawn(pattern.num_entries), drawn(11, 4)

    def gradient() -> Tensor:
        leaf, matrix = values.clone().requires_grad_(), x.clone().requires_grad_()
        out = spmm(pattern, edge_softmax(pattern, leaf), matrix)
        (first,) = torch.autograd.grad((out**2).sum(), matrix, create_graph=True)
        return torch.autograd.grad((first**2).sum(), leaf)[0]

    with operators.reference_kernels():
        expected = gradient()
    torch.testing.assert_close(gradient(), expected)
