"""One run of a fit: its seed and device, its fingerprint, the threads that it has."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, final

import torch
from torch import Tensor, nn

from gsebo.code_paths import is_reproducible, require_code_paths
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.relations import kept_with_nodes
from gsebo.graph.graph import Graph
from gsebo.methods.parameters import SklearnEstimator
from gsebo.sparse.numba_compile import kernel_threads, threads_given
from gsebo.training import Checkpoint, Watcher

# Not tuned: above the million at which one product breaks even
# (benchmarks/thresholds.py), because the small operations around it gain nothing.
_WORTH_THREADS = 4_000_000
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PLAIN = (bool, int, float, str, tuple, list, type(None))


@contextmanager
def alike_on_any_threads() -> Iterator[None]:
    """In reproducible mode, leave the threads to the kernels, which round alike on any.

    torch and MKL divide an operation by the number of threads, and sum or round the
    parts differently; on one thread there is nothing to divide. Otherwise this does
    nothing. It can decorate a function.
    """
    require_code_paths()
    if not is_reproducible():
        yield
        return
    given = torch.get_num_threads()
    with kernel_threads(threads_given()):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(given)


def is_worth_threads(multiplications: int) -> bool:
    """Whether one propagation takes so many that several threads share each."""
    return multiplications >= _WORTH_THREADS


@contextmanager
def one_core_each() -> Iterator[None]:
    """Let fits that run on threads of their own have one core each.

    Threads that are begun inside take torch's number over, so that no fit that ends
    changes it under another one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with kernel_threads(1):
            yield
    finally:
        torch.set_num_threads(before)


_DRAWING = RLock()


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Let torch draw by a seed, and go on afterwards as if nothing had been drawn.

    All threads have one generator, so that they draw one after another.
    """
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def threads_for(multiplications: int, runs: int = 1) -> Iterator[None]:
    """Run on one thread if one propagation takes fewer multiplications than it pays.

    Several runs have all threads for themselves, one for each. But torch's operations,
    whose rounding may depend on the number of threads, get as many as for a single run,
    so that a run among others equals the run alone; in reproducible mode they get one.
    """
    before = torch.get_num_threads()
    given = threads_given() if is_reproducible() else before
    alone = given if is_worth_threads(multiplications) else 1
    together = given if runs > 1 else alone
    torch.set_num_threads(1 if is_reproducible() else alone)
    try:
        with kernel_threads(together):
            yield
    finally:
        torch.set_num_threads(before)


def _numbers(x: Tensor | None) -> tuple[Tensor, ...]:
    """The tensors that features consist of; a sparse matrix may be huge when dense."""
    if x is None:
        return ()
    if x.layout == torch.strided:
        return (x,)
    return x.crow_indices(), x.col_indices(), x.values()


def _describe(value: object) -> str:
    """Say what a parameter is that JSON does not know, the same in every process."""
    text = _ADDRESS.sub("", repr(value))
    if not isinstance(value, nn.Module):
        return text
    # The repr of a module leaves out most of what its constructor stored.
    for module in value.modules():
        stored = {
            name: each
            for name, each in vars(module).items()
            if isinstance(each, _PLAIN) and not name.startswith("_")
        }
        stored.pop("training", None)
        text += f"\n{type(module).__qualname__} {sorted(stored.items())}"
    return _ADDRESS.sub("", text)


@final
@dataclass(frozen=True, eq=False)
class Run:
    """One call of ``fit``: its seed, device and what goes with it."""

    estimator: SklearnEstimator
    data: Graph | GraphFolder
    seed: int
    device: torch.device
    checkpoint: Checkpoint | None
    watcher: Watcher | None

    def stage(self, number: int) -> "Run":
        """The same run in one of several trainings, each with its own checkpoint."""
        checkpoint = self.checkpoint and self.checkpoint.stage(number)
        return replace(self, checkpoint=checkpoint)

    def watched_by(self, watcher: Watcher | None) -> "Run":
        """The same run with another watcher, and without a checkpoint."""
        return replace(self, checkpoint=None, watcher=watcher)

    def fingerprint(self) -> str:
        """Hash what the fit depends on and may read, for a checkpoint."""
        if self.checkpoint is None:
            return ""
        data, parameters = self.data, self.estimator.get_params(deep=False)
        parameters["random_state"] = self.seed
        # Where numbers are computed and kept makes no difference to them.
        for name in ("device", "shard_strengths"):
            parameters.pop(name, None)
        said: list[Any] = [type(self.estimator).__name__, parameters]
        if isinstance(data, Graph) and (types := data.types) is not None:
            said.append([types.names, types.columns, types.classified])
        text = json.dumps(said, sort_keys=True, default=_describe)
        if isinstance(data, GraphFolder):
            named = sorted(data.manifest.arrays.items())
            text += "\n".join(f"{name}:{entry.sha256}" for name, entry in named)
            return hashlib.sha256(text.encode()).hexdigest()
        digest = hashlib.sha256(text.encode())
        labelled = data.train_mask | data.val_mask
        tensors = (data.edge_index, data.train_mask, data.val_mask, data.y[labelled])
        given = "edge_weight", "edge_attr", "edge_type", *kept_with_nodes(data)
        values = [data[key] for key in given if key in data]
        for tensor in (*_numbers(data.x), *tensors, *values):
            digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().view(torch.uint8).numpy()
            digest.update(flat.data)
        return digest.hexdigest()
