"""The numba kernels give the same bits serial, parallel, and on any thread."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import Tensor

from gsebo.sparse import (
    edge_softmax,
    numba_compile,
    numba_cpu,
    row_expand,
    row_sum,
    sddmm,
    spmm,
)
from gsebo.sparse import numba_cpu as numba_spmm
from gsebo.sparse.numba_compile import Variants, run_kernel
from gsebo.sparse.numba_pack import packs_of

from .patterns import large, normal

pytestmark = pytest.mark.compiles

VARIANTS = {
    name: getattr(numba_cpu, name)
    for name in dir(numba_cpu)
    if isinstance(getattr(numba_cpu, name), Variants)
} | {f"_SPMM_{width}": kernel for width, kernel in numba_spmm._KERNELS.items()}
THREADS = range(1, min(2, numba.config.NUMBA_NUM_THREADS) + 1)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def all_operators(dtype: torch.dtype, channels: int = 17) -> list[Tensor]:
    """Every operator on a graph large enough for several tasks, two in a batch."""
    pattern = large().pattern
    rows, entries = pattern.num_rows, pattern.num_entries
    values = normal(2, entries, dtype=dtype)
    a, b = normal(2, rows, channels, dtype=dtype), normal(rows, channels, dtype=dtype)
    return [
        spmm(pattern, values, a),
        spmm(pattern.T, values, b),
        sddmm(pattern, a, b),
        row_sum(pattern, values),
        row_expand(pattern, a[..., 0]),
        edge_softmax(pattern, values),
    ]


def same_bits(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def test_the_cache_on_disk_keeps_the_variants_apart() -> None:
    """numba knows a kernel by file, qualified name and line, and by no option."""
    assert len(VARIANTS) == 6 + 5
    for serial, twin in VARIANTS.values():
        assert serial.py_func.__qualname__ != twin.py_func.__qualname__
        assert serial.py_func.__name__ != twin.py_func.__name__
        assert serial.py_func.__code__ is twin.py_func.__code__
        assert not serial.targetoptions.get("parallel")
        assert twin.targetoptions["parallel"]


def compiled(folder: Path, **files: str) -> Any:
    """The function ``kernel`` of the file ``loop``, as a new process compiles it."""
    numba_compile._digest.cache_clear()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    loaded: dict[str, Any] = {}
    for name in ("helper", "loop"):
        path = folder / f"{name}.py"
        loaded["__name__"] = name
        code = compile(path.read_text(), path, "exec")
        exec(code, loaded)
    return numba_compile.compile_kernel(loaded["kernel"])


def test_the_cache_on_disk_follows_sources_elsewhere(tmp_path: Path) -> None:
    helper = "from numba import njit\n@njit\ndef add(x):\n    return x + 1\n"
    loop = "def kernel(x):\n    return add(x)\n"
    first = compiled(tmp_path, helper=helper, loop=loop)
    assert first(1) == 2
    again = compiled(tmp_path)
    assert again(1) == 2 and again.stats.cache_hits
    # The file of the kernel itself is the same.
    other = compiled(tmp_path, helper=helper.replace("1", "2"))
    assert other(1) == 3 and not other.stats.cache_hits
    assert first.py_func.__name__ == again.py_func.__name__ != other.py_func.__name__


def test_options_and_constants_have_a_name_of_their_own() -> None:
    def kernel(x: int) -> int:
        return x + STEP  # type: ignore[name-defined]  # noqa: F821

    ways = ({}, {"fastmath": {"nsz"}}, {"parallel": True}, {"STEP": 1}, {"STEP": 2})
    names = [
        numba_compile.compile_kernel(kernel, **way).py_func.__name__ for way in ways
    ]
    assert len(set(names)) == len(ways)


def test_what_writes_instructions_itself_is_followed() -> None:
    """A pack of four numbers and one of eight have one source."""

    def kernel(x: Any) -> Any:
        return load(x, 0)  # type: ignore[name-defined]  # noqa: F821

    names = [
        numba_compile.compile_kernel(kernel, load=packs_of(count).load).py_func.__name__
        for count in (4, 8)
    ]
    assert names[0] != names[1]


@pytest.mark.exact
@dtypes
@pytest.mark.parametrize("channels", [1, 2, 7, 16, 33, 64])
def test_parallel_equals_serial(
    dtype: torch.dtype, channels: int, request: pytest.FixtureRequest
) -> None:
    serial = all_operators(dtype, channels)
    request.getfixturevalue("parallel")
    assert same_bits(serial, all_operators(dtype, channels))


@pytest.mark.usefixtures("restored_threads")
def test_one_thread_of_torch_means_one_of_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", -1)
    torch.set_num_threads(1)
    taken = []
    kernel = Variants(
        serial=lambda *_: taken.append("serial"),
        parallel=lambda *_: taken.append("twin"),
    )
    run_kernel(kernel, 10**9)
    torch.set_num_threads(2)
    run_kernel(kernel, 10**9)
    with numba_compile._PARALLEL_LOCK:
        run_kernel(kernel, 10**9)
    assert taken == ["serial", "twin" if len(THREADS) > 1 else "serial", "serial"]


@pytest.mark.usefixtures("parallel")
def test_enough_work_takes_the_parallel_variant() -> None:
    for channels in (1, 4, 8, 16, 32):
        all_operators(torch.float32, channels)
    if len(THREADS) > 1:
        assert all(
            twin.signatures
            for name, (_, twin) in VARIANTS.items()
            if name not in ("_KEEP_MASK", "_UNIFORM")
        )


@pytest.mark.exact
@dtypes
@pytest.mark.usefixtures("restored_threads")
def test_any_number_of_threads(dtype: torch.dtype) -> None:
    """The parallel variant itself, also where one thread would choose the serial."""
    pattern = large().pattern
    values = normal(1, pattern.num_entries, dtype=dtype).numpy()
    x = normal(1, pattern.num_columns, 9, dtype=dtype)
    results = []
    for threads in THREADS:
        numba.set_num_threads(threads)
        out = torch.empty(1, pattern.num_rows, 9, dtype=dtype)
        VARIANTS["_SPMM_8"][1](*pattern.arrays, values, x.numpy(), out.numpy())
        dots = torch.empty(1, pattern.num_entries, dtype=dtype)
        VARIANTS["_SDDMM"][1](*pattern.arrays, x.numpy(), x.numpy(), dots.numpy())
        results.append([out, dots])
    assert all(same_bits(results[0], each) for each in results)


@pytest.mark.usefixtures("parallel")
def test_concurrent_calls_from_python_threads() -> None:
    expected = all_operators(torch.float64)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(all_operators, torch.float64) for _ in range(12)]
        assert all(same_bits(expected, future.result()) for future in futures)


WORKQUEUE = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
import numba, torch
from gsebo.sparse import Pattern, spmm
from gsebo.sparse import numba_compile

numba_compile._PARALLEL_WORK = -1
torch.set_num_threads(2)
ring = torch.arange(3000)
pattern = Pattern.from_positions(ring, ring.roll(1), 3000)
x, values = torch.rand(3000, 64), torch.rand(3000)
expected = spmm(pattern, values, x)
with ThreadPoolExecutor(4) as pool:
    for out in pool.map(lambda _: spmm(pattern, values, x), range(200)):
        assert torch.equal(out, expected)
print(numba.threading_layer())
"""


def test_concurrent_calls_on_the_thread_pool_that_allows_none() -> None:
    """Where there is no OpenMP, numba's own pool aborts on a second Python thread."""
    if len(THREADS) < 2:
        pytest.skip("one thread: the serial variant is always taken")
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", WORKQUEUE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "workqueue"


def test_concurrent_second_order() -> None:
    """Autograd may run in any thread too."""
    pattern = large().pattern
    values, x = normal(pattern.num_entries), normal(pattern.num_columns, 4)

    def gradient(_: int) -> Tensor:
        leaf, matrix = values.clone().requires_grad_(), x.clone().requires_grad_()
        out = spmm(pattern, edge_softmax(pattern, leaf), matrix)
        (first,) = torch.autograd.grad((out**2).sum(), matrix, create_graph=True)
        return torch.autograd.grad((first**2).sum(), leaf)[0]

    expected = gradient(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(expected, each) for each in pool.map(gradient, range(8)))
