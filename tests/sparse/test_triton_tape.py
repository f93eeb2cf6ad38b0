"""Programs on Triton kernels against programs on the CPU.

They run on a CUDA device, or slowly in Triton's interpreter where there is none.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from gsebo.data import load
from gsebo.nn import GAT, GCN, GCNII, MLP, SAGE, JKNet
from gsebo.nn.base import Backbone
from gsebo.sparse import Noise, Pattern, Untraceable
from gsebo.sparse.operators import make_features
from gsebo.sparse.random_bits import Drop
from gsebo.sparse.symbol import Strengths, Symbol
from gsebo.tape import Program, Reach, backend, program, trace
from gsebo.tape.backend import FeatureStep
from gsebo.tape.cpu_kernels import NUMBA_TAPE

from .patterns import dropped_features, normal

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Has to be in the environment before anything imports triton, as torch may do.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = find_spec("triton") is not None
if TRITON and (ON_GPU or INTERPRETED):
    from gsebo.sparse import triton_segments
    from gsebo.tape import cuda_kernels as triton_tape
    from gsebo.tape import cuda_rows as triton_tape_chunks

needs_triton = pytest.mark.skipif(
    not (TRITON and (ON_GPU or INTERPRETED)),
    reason="left to test_in_the_interpreter"
    if TRITON
    else "no CUDA device and no triton here",
)
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="no CUDA device here")
# The interpreter computes with numpy, which warns where a GPU wraps around.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CLASSES = 4
SEEDS = [2**63 + 2**40 + 5, 7, 2**32 - 1]
STRONG = {"residual": True, "input_projection": True}
NETWORKS = {
    "gcn": lambda width: GCN(width, 6, CLASSES),
    "deep gcn": lambda width: GCN(width, 3, CLASSES, num_layers=3),
    "sage": lambda width: SAGE(width, 5, CLASSES),
    "jk": lambda width: JKNet(width, 4, CLASSES),
    "mlp": lambda width: MLP(width, 5, CLASSES),
    "gat": lambda width: GAT(width, 3, CLASSES, heads=3),
    "normed": lambda width: GCN(width, 5, CLASSES, norm="layer", **STRONG),
    "normed by batch": lambda width: GCN(width, 5, CLASSES, norm="batch", **STRONG),
    "gcnii": lambda width: GCNII(width, 5, CLASSES),
}
# What takes seconds on a GPU takes minutes in the interpreter.
CASES = [
    (network, lanes, replicas, torch.float64)
    for network in NETWORKS
    for lanes, replicas in ((1, 1), (2, 3))
]
if ON_GPU:
    CASES += [
        (network, lanes, replicas, dtype)
        for network in NETWORKS
        for lanes, replicas in ((1, 3), (2, 1))
        for dtype in (torch.float32, torch.float64)
    ]
else:
    CASES += [("gcn", 2, 1, torch.float32)]


@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="runs here already")
@pytest.mark.skipif(not TRITON, reason="no CUDA device and no triton here")
def test_in_the_interpreter() -> None:
    """All of this file, in a process that knows of it before it imports triton."""
    if tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
        pytest.skip("the interpreter before triton 3.7 does not run on numpy 2.4")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def triton_kernels() -> Iterator[None]:
    """Binds programs to Triton kernels inside, on the CPU too."""
    chosen = program.tape_kernels_for
    try:
        program.tape_kernels_for = lambda like: triton_tape.TRITON_TAPE
        yield
    finally:
        program.tape_kernels_for = chosen


@dataclass(frozen=True)
class Case:
    """A network on a graph, with what it is run on."""

    network: Backbone
    pattern: Pattern
    x: Tensor
    nodes: Tensor
    labels: Tensor
    lanes: int = 2
    replicas: int = 1
    layers: int = 1
    dtype: torch.dtype = torch.float64

    def program(self, device: str) -> Program:
        """Bind it on a device, with weights and strengths loaded."""
        weights = dict(self.network.named_parameters())
        features = Symbol.of_features(self.x.shape[1], weights)
        strengths = Strengths(self.layers > 1)
        scores = self.network(features, self.pattern, strengths, Noise(0, 0))
        tape = trace(scores, weights)
        program = Program(
            tape,
            Reach(
                self.pattern.to(device),
                self.nodes.to(device),
                tape.depth,
                tape.everywhere_from,
            ),
            make_features(self.x, self.dtype, device),
            self.labels.to(device),
            mean=True,
            seeds=SEEDS[: self.replicas],
            lanes=self.lanes,
            strength_gradient=True,
        )
        weights = program.weights
        weights.value.copy_(0.5 * normal(*weights.value.shape, seed=1))
        weights.tangent.copy_(normal(*weights.tangent.shape, seed=2))
        shape = 1, self.layers, self.pattern.num_entries
        strengths = torch.sigmoid(normal(*shape, seed=3)).to(device, self.dtype)
        program.strengths.load(strengths)
        return program

    def found(self, program: Program) -> dict[str, Tensor]:
        """Everything that a program computes."""
        by_strengths = program.strengths.gradient(self.layers, self.pattern.num_entries)
        return {
            "loss": program.loss.clone(),
            "output": program.output.clone(),
            "by weights": program.weights.gradient.clone(),
            "by strengths": by_strengths,
        }

    def on_cpu(self) -> dict[str, Tensor]:
        """What the CPU computes in two runs."""
        program = self.program("cpu")
        program.run(2**33 + 3)
        program.run(4)
        return self.found(program)

    def on_triton(self) -> dict[str, Tensor]:
        """What the Triton kernels compute: on a GPU one by one, then as a graph."""
        with triton_kernels():
            program = self.program(DEVICE)
        program.run(2**33 + 3)
        program.run(4)
        return self.found(program)


def graph(network: Backbone, num_nodes: int = 14, num_edges: int = 40) -> Pattern:
    """A random graph; without self-loops some rows are empty."""
    generator = torch.Generator().manual_seed(3)
    ends = torch.randint(num_nodes, (2, num_edges), generator=generator)
    loops = torch.arange(num_nodes if network.self_loops else 0).expand(2, -1)
    rows, columns = torch.cat([ends, loops], dim=1)
    return Pattern.from_positions(rows, columns, num_nodes)


def case(name: str, *, sparse: bool = True, hub: int = 0, **options: object) -> Case:
    """A small case; ``hub`` adds so many entries to one row and to one column."""
    torch.manual_seed(0)
    network = NETWORKS[name](11)
    pattern = graph(network)
    if hub:
        generator = torch.Generator().manual_seed(4)
        ends = torch.randint(pattern.num_rows, (2, hub), generator=generator)
        node = torch.zeros(hub, dtype=torch.int64)
        pattern = Pattern.from_positions(
            torch.cat([pattern.row_of_entry, node, ends[0]]),
            torch.cat([pattern.column_of_entry, ends[1], node + 1]),
            pattern.num_rows,
        )
    x = normal(pattern.num_rows, 11, seed=5)
    if sparse:
        x = x * (normal(*x.shape, seed=6) > 1)
    nodes = torch.arange(0, pattern.num_rows, 3)
    labels = nodes % CLASSES
    dtype = options.get("dtype", torch.float64)
    return Case(network.to(dtype), pattern, x, nodes, labels, **options)


def assert_close(
    found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype
) -> None:
    bound = 1e-10 if dtype == torch.float64 else 1e-5
    for name, wanted in expected.items():
        error = torch.linalg.vector_norm(found[name].cpu() - wanted)
        assert error <= bound * torch.linalg.vector_norm(wanted), name


@needs_triton
@pytest.mark.parametrize(("network", "lanes", "replicas", "dtype"), CASES)
def test_equals_the_program_on_the_cpu(
    network: str, lanes: int, replicas: int, dtype: torch.dtype
) -> None:
    given = case(
        network,
        sparse=lanes == 2,
        lanes=lanes,
        replicas=replicas,
        dtype=dtype,
        layers=NETWORKS[network](1).num_propagations if lanes == 2 else 1,
    )
    assert_close(given.on_triton(), given.on_cpu(), dtype)


@needs_triton
@pytest.mark.parametrize("network", ["gcn", "gat"])
def test_rows_that_are_cut(network: str) -> None:
    given = case(network, sparse=False, hub=600)
    assert_close(given.on_triton(), given.on_cpu(), torch.float64)


@needs_triton
@pytest.mark.parametrize("network", ["gcn", "gat"])
def test_tiles_for_large_graphs(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_tape, "_LITTLE", 0)
    monkeypatch.setattr(triton_tape_chunks, "_MOST", 1)
    monkeypatch.setattr(triton_segments, "_AT_ONCE", 0)
    given = case(network)
    assert_close(given.on_triton(), given.on_cpu(), torch.float64)


# In the interpreter it takes minutes.
@needs_gpu
@needs_triton
@pytest.mark.parametrize("network", ["gcn", "gat", "jk"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_cora(network: str, lanes: int) -> None:
    data = load("cora")
    torch.manual_seed(0)
    make = {"gcn": GCN, "gat": GAT, "jk": JKNet}[network]
    chosen = make(data.x.shape[1], 16 if network == "gcn" else 8, 7).double()
    loops = torch.arange(data.num_nodes)
    pattern = Pattern.from_positions(
        torch.cat([data.edge_index[1], loops]),
        torch.cat([data.edge_index[0], loops]),
        data.num_nodes,
    )
    nodes = data.train_mask.nonzero().squeeze(-1)
    given = Case(chosen, pattern, data.x, nodes, data.y[nodes], lanes=lanes)
    assert_close(given.on_triton(), given.on_cpu(), torch.float64)


@needs_triton
@pytest.mark.parametrize("network", ["gcn", "gat"])
def test_same_bits_every_time(network: str) -> None:
    given = case(network, hub=600 if ON_GPU else 0, dtype=torch.float32)
    first, second = given.on_triton(), given.on_triton()
    assert all(torch.equal(first[name], second[name]) for name in first)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_masks_as_on_the_cpu(dtype: torch.dtype) -> None:
    # Far beyond 32 bits, and across a multiple of 2**32.
    positions = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 3, *range(2000)])
    seeds = torch.tensor([-5, 2**62 + 9, 0])
    values = normal(len(positions), dtype=dtype)
    masks = {}
    for kernels, device in ((NUMBA_TAPE, "cpu"), (triton_tape.TRITON_TAPE, DEVICE)):
        drop = Drop(
            seeds.to(device),
            torch.tensor([2**35 + 1], device=device),
            site=3,
            rate=0.3,
            positions=positions.to(device),
        )
        rows = torch.arange(len(positions), device=device)
        each = Pattern.from_positions(rows, torch.zeros_like(rows), len(rows), 1)
        step = FeatureStep(
            each, values.to(device), drop, 3, lambda rows, each=each: each
        )
        masks[kernels] = dropped_features(kernels, step).cpu()
    assert torch.equal(masks[NUMBA_TAPE], masks[triton_tape.TRITON_TAPE])


@needs_gpu
@needs_triton
def test_a_graph_computes_what_the_calls_do() -> None:
    given = case("gcn", replicas=3)
    program = given.program("cuda")
    program.run(4)
    one_by_one = given.found(program)
    program.run(5)
    program.run(4)
    as_graph = given.found(program)
    for name in ("loss", "output", "by weights"):
        assert torch.equal(one_by_one[name], as_graph[name])


@needs_gpu
@needs_triton
def test_kernels_can_be_timed() -> None:
    program = case("gcn").program("cuda")
    assert 0 < program.kernel_seconds(repeats=3) < 1


def test_without_triton_there_are_no_kernels_for_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "has_triton", lambda: False)
    on_cuda = SimpleNamespace(dtype=torch.float32, device=torch.device("cuda"))
    with pytest.raises(Untraceable, match="cuda"):
        backend.tape_kernels_for(on_cuda)


def test_no_kernels_for_half_precision() -> None:
    with pytest.raises(Untraceable, match="float16"):
        backend.tape_kernels_for(torch.empty(1, dtype=torch.float16))
