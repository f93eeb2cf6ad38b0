"""Kernels of tapes on the CPU against dense matrices, alone and on two threads."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.sparse import Pattern, numba_compile
from gsebo.sparse.numba_calls import CallList, KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice, kernel_threads
from gsebo.sparse.random_bits import Drop
from gsebo.tape.backend import FeatureStep
from gsebo.tape.cpu_features import NumbaFeatures
from gsebo.tape.cpu_products import bind_product
from gsebo.tape.cpu_sums import bind_copy, bind_penalty, bind_scaled

from .patterns import examples, normal

pytestmark = pytest.mark.compiles
sizes = st.integers(0, 21)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", -1)
    with kernel_threads(2):
        yield


def made(*calls: KernelCall) -> None:
    CallList(calls)()


@given(rows=sizes, depth=sizes, columns=st.integers(1, 21), add=st.booleans())
@examples
def test_products_are_those_of_torch(
    rows: int, depth: int, columns: int, add: bool
) -> None:
    wide = normal(2, rows, 2 * columns, seed=1)
    left, right = normal(2, rows, depth, seed=2), normal(2, depth, columns, seed=3)
    for a, b in ((left, right), (left, right.mT.contiguous().mT)):
        for turned in (a, a.mT.contiguous().mT):
            # Rows of the result may lie apart.
            out = wide.clone()[:, :, columns:]
            expected = turned @ b + (out if add else 0)
            made(bind_product(turned, b, out, add=add))
            torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_does_not_depend_on_threads_or_replicas(
    turned: bool, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = normal(3, 1300, 1100, seed=1).float(), normal(3, 1100, 9).float()
    if turned:
        left = left.mT.contiguous().mT
    together = right.new_empty(3, 1300, 9)
    made(bind_product(left, right, together, add=False))
    monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", 2**60)
    for replica in range(3):
        alone, part = right.new_empty(1, 1300, 9), slice(replica, replica + 1)
        made(bind_product(left[part], right[part], alone, add=False))
        assert torch.equal(alone[0], together[replica])


def features_of(rows: int, drop: Drop | None, replicas: int) -> FeatureStep:
    generator = torch.Generator().manual_seed(rows)
    places = torch.rand(rows, 40, generator=generator) < 0.3
    pattern = Pattern.from_positions(*places.nonzero(as_tuple=True), rows, 40)
    values = normal(pattern.num_entries, seed=5)
    if drop is not None:
        drop = drop._replace(positions=torch.arange(pattern.num_entries) + 2**33)
    return FeatureStep(pattern, values, drop, replicas, lambda rows: pattern)


def dense(step: FeatureStep, values: Tensor) -> Tensor:
    matrix = values.new_zeros(step.pattern.num_rows, step.pattern.num_columns)
    place = step.pattern.row_of_entry.long(), step.pattern.column_of_entry.long()
    return matrix.index_put(place, values)


@pytest.mark.parametrize("channels", [1, 3, 7, 16, 37])
@pytest.mark.parametrize("dropped", [False, True])
def test_features_without_what_is_dropped(channels: int, dropped: bool) -> None:
    seeds, step = torch.tensor([3, 2**40]), torch.tensor([7])
    drop = Drop(seeds, step, 2, 0.4, seeds) if dropped else None
    given = features_of(300, drop, 2)
    kernels = NumbaFeatures(given)
    weight, tangent = normal(2, 2, 40, channels, seed=1)
    out = weight.new_empty(2, 300, 2, channels)
    made(*kernels.draw(), *kernels.times((weight, tangent), out))
    one = weight.new_empty(2, 300, 1, 40)
    eye = torch.eye(40).double().repeat(2, 1, 1)
    made(*kernels.times((eye, eye), one))
    left = one[:, :, 0]
    whole = dense(given, given.values).expand_as(left)
    kept = left != 0
    torch.testing.assert_close(left[kept], whole[kept] / (0.6 if dropped else 1))
    assert torch.equal(kept, whole != 0) != dropped
    assert torch.equal(left[0], left[1]) != dropped
    torch.testing.assert_close(out[:, :, 0], left @ weight)
    torch.testing.assert_close(out[:, :, 1], left @ tangent)
    # Of fewer rows, and backwards.
    first = normal(2, 200, channels, seed=2)
    to = weight.clone()
    made(*kernels.turned_times(first, to))
    torch.testing.assert_close(to, left[:, :200].mT @ first)


def test_features_do_not_depend_on_threads(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, found = torch.tensor([3]), []
    drop = Drop(seeds, torch.tensor([7]), 2, 0.4, seeds)
    for work in (-1, 2**60):
        monkeypatch.setattr(numba_compile, "_PARALLEL_WORK", work)
        kernels = NumbaFeatures(features_of(700, drop, 1))
        weight, to = normal(1, 40, 37, seed=1), normal(1, 40, 37)
        out = weight.new_empty(1, 700, 1, 37)
        made(*kernels.draw(), *kernels.times((weight, weight), out))
        made(*kernels.turned_times(out[:, :, 0], to))
        found.append((out, to))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_sums_and_penalties() -> None:
    x, out = normal(2, 5, 2, 3, seed=1), normal(2, 9, 2, 7, seed=2)
    part = out[:, :5, :, 2:5]
    expected = part + 0.5 * x
    made(bind_scaled(x, 0.5, part, add=True))
    torch.testing.assert_close(part, expected)
    made(bind_copy(x, part))
    assert torch.equal(part, x)
    weights, found = normal(2, 5000, seed=3), normal(2, 5000, seed=4)
    loss, to = torch.ones(2).double(), found.clone()
    made(bind_penalty(weights, 0.1, found, to, loss))
    torch.testing.assert_close(to, found + 0.1 * weights)
    torch.testing.assert_close(loss, 1 + 0.05 * weights.square().sum(1))
    made(bind_penalty(weights, 0.1, found, found, loss[:0]))
    assert torch.equal(found, to)


def _checked(x, out):  # type: ignore[no-untyped-def]
    if x[0] < 0:
        raise ValueError("negative")
    out[0] = x[0]


def test_calls_say_when_one_fails_and_can_be_moved() -> None:
    kernel = compile_twice(_checked)
    x, other, out = np.array([1.0]), torch.tensor([5.0]), np.zeros(1)
    call = bind_kernel(kernel, 0, x, out)
    call()
    assert out[0] == 1
    made(call.instead({x.ctypes.data: other.double()}), call.instead({0: other}))
    assert out[0] == 1
    assert call.instead({0: other}) is call
    x[0] = -1
    with pytest.raises(RuntimeError, match="kernel call 1 raised an error"):
        made(call.instead({x.ctypes.data: other.double()}), call)
    assert out[0] == 5
