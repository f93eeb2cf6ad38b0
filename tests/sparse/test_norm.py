"""Two ways to normalise on tapes: loops of numba, and operations of torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse import Pattern
from gsebo.sparse.backend import Call
from gsebo.sparse.numba_compile import kernel_threads
from gsebo.sparse.symbol import Standardise, Strengths, Symbol
from gsebo.tape import Program, Reach, trace
from gsebo.tape.backend import Gradients, StandardiseStep, StepKernels, TapeKernels
from gsebo.tape.composed_norm import ComposedNorm
from gsebo.tape.cpu_norm import NumbaNorm

from .patterns import normal

pytestmark = pytest.mark.compiles
KINDS = ("layer", "batch")
kinds = pytest.mark.parametrize("kind", KINDS)


def step_of(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> StandardiseStep:
    replicas, _, _, channels = shape
    z = normal(*shape, seed=1).to(dtype)
    weights = (normal(replicas, channels, seed=each).to(dtype) for each in (2, 3))
    return StandardiseStep(kind, z, (next(weights), next(weights)), 1e-5)


def results(
    kernels: StepKernels, step: StandardiseStep, kept: int, *, add: bool
) -> list[Tensor]:
    """Result, gradient by z and gradient by the weight, in a second run."""
    replicas, _, lanes, channels = step.z.shape
    out = step.z.new_empty(replicas, kept, lanes, channels)
    grad = normal(*out.shape, seed=4).to(out)
    to_z, to_weight = torch.ones_like(step.z), step.z.new_ones(replicas, channels)
    gradients = Gradients(grad, to_z, to_weight, None, add)
    calls = [*kernels.forward(out), *kernels.back(gradients)]
    for _ in range(2):
        to_z.fill_(1)
        to_weight.fill_(1)
        for call in calls:
            call()
    return [out, to_z, to_weight]


def autograd(step: StandardiseStep, kept: int, *, add: bool) -> list[Tensor]:
    """The same by torch, tangents by a second derivative."""
    z, lanes = step.z, step.z.shape[2]
    out = z.new_empty(z.shape[0], kept, lanes, z.shape[3])
    grad = normal(*out.shape, seed=4).to(out)
    axis = -1 if step.kind == "layer" else -2

    def pulled(x: Tensor, weight: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        centred = x - x.mean(axis, keepdim=True)
        spread = (centred.square().mean(axis, keepdim=True) + step.epsilon).sqrt()
        y = (centred / spread * weight.unsqueeze(1))[:, :kept]
        return y, *torch.autograd.grad(y, (x, weight), g, create_graph=True)

    numbers = z[:, :, 0], step.weight[0], grad[:, :, 0]
    numbers = tuple(each.clone().requires_grad_() for each in numbers)
    if lanes == 1:
        y, by_z, by_weight = pulled(*numbers)
        return [y.unsqueeze(2), by_z.unsqueeze(2) + add, by_weight + 1]
    tangents = z[:, :, 1], step.weight[1], grad[:, :, 1]
    found, moved = torch.autograd.functional.jvp(pulled, numbers, tangents)
    both = [torch.stack(pair, 2) for pair in zip(found[:2], moved[:2], strict=True)]
    return [both[0], both[1] + add, moved[2] + 1]


@kinds
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("add", [False, True])
@given(
    replicas=st.integers(1, 3),
    rows=st.integers(1, 30),
    channels=st.integers(1, 19),
    data=st.data(),
)
@settings(deadline=None, max_examples=12)
def test_both_ways_are_the_derivatives(
    kind: str,
    lanes: int,
    add: bool,
    replicas: int,
    rows: int,
    channels: int,
    data: st.DataObject,
) -> None:
    step = step_of(kind, (replicas, rows, lanes, channels), torch.float64)
    kept = data.draw(st.integers(1, rows)) if kind == "batch" else rows
    expected = autograd(step, kept, add=add)
    for way in (NumbaNorm, ComposedNorm):
        for found, wanted in zip(
            results(way(step), step, kept, add=add), expected, strict=True
        ):
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_replica_has_the_bits_of_its_run_alone(kind: str, dtype: torch.dtype) -> None:
    """On one thread or two, with more rows than one task takes."""
    step = step_of(kind, (3, 2500, 2, 33), dtype)
    with kernel_threads(2):
        together = results(NumbaNorm(step), step, 2500, add=False)
    number = 1
    one = slice(number, number + 1)
    weight, tangent = (each[one].clone() for each in step.weight)
    alone = StandardiseStep(kind, step.z[one].clone(), (weight, tangent), step.epsilon)
    _, rows, lanes, channels = alone.z.shape
    out = torch.empty_like(alone.z)
    grad = normal(3, rows, lanes, channels, seed=4).to(out)[one].clone()
    to_z, to_weight = torch.ones_like(out), out.new_ones(1, channels)
    kernels = NumbaNorm(alone)
    with kernel_threads(1):
        for call in (
            *kernels.forward(out),
            *kernels.back(Gradients(grad, to_z, to_weight, None, False)),
        ):
            call()
    for found, wanted in zip(together, (out, to_z, to_weight), strict=True):
        assert torch.equal(found[one], wanted)


@contextmanager
def composed() -> Iterator[None]:
    """Bind programs to the operations of torch, as on a GPU."""
    from gsebo.tape.cpu_kernels import NUMBA_TAPE

    def one_by_one(self: TapeKernels, calls: list[Call], device: torch.device) -> Call:
        return lambda: [call() for call in calls]

    kernels = type(NUMBA_TAPE)
    before = kernels.standardise, kernels.together
    try:
        kernels.standardise = lambda self, step: ComposedNorm(step)
        kernels.together = one_by_one
        yield
    finally:
        kernels.standardise, kernels.together = before


def program_of(kind: str, lanes: int, everywhere_from: int | None) -> Program:
    weights = {"first": torch.zeros(3, 4), "scale": torch.zeros(4)}
    x = Symbol.of_features(3, weights) @ weights["first"]
    x = x.then(Standardise, kind, "scale", 1e-5)
    tape = trace(torch.relu(x), weights)
    pattern = Pattern.from_positions(torch.tensor([0, 1]), torch.tensor([1, 2]), 6)
    nodes = torch.tensor([4, 1])
    return Program(
        tape,
        Reach(pattern, nodes, tape.depth, everywhere_from),
        normal(6, 3, seed=7),
        torch.tensor([0, 3]),
        mean=True,
        seeds=[0, 1],
        lanes=lanes,
        strength_gradient=Strengths(False).dim() == 2,
    )


@kinds
@pytest.mark.parametrize("lanes", [1, 2])
def test_programs_of_both_ways_agree(kind: str, lanes: int) -> None:
    found = []
    ways = [program_of(kind, lanes, 1 if kind == "batch" else None)]
    with composed():
        ways.append(program_of(kind, lanes, 1 if kind == "batch" else None))
    for program in ways:
        program.weights.value.copy_(normal(*program.weights.value.shape, seed=8))
        program.weights.tangent.copy_(normal(*program.weights.tangent.shape, seed=9))
        program.run()
        found.append((program.loss, program.output, program.weights.gradient))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_norm_over_all_nodes_needs_all_nodes() -> None:
    with pytest.raises(InvalidInput, match="looks at all nodes, expected 6"):
        program_of("batch", 1, None)
