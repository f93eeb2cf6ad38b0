"""Do all contenders compute the same hypergradient, and is it the right one?

In float64 and without dropout. A hypergradient is compared with ours, number by number,
and along random directions with central finite differences of two trainings: one by
``torch.optim``, which says what is right, and the contender's own, which says whether
it at least differentiates what it does.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Case
from benchmarks.command_line import add_cases, count
from benchmarks.graphs import in_double, load_graph
from benchmarks.ours import Ours
from benchmarks.packages import OURS, require_installed
from benchmarks.peers.peer import Peer
from benchmarks.peers.plain import PlainTraining
from benchmarks.peers.trainer import Trainer
from benchmarks.records import Records
from benchmarks.setting import Setting
from benchmarks.task import Task

DIRECTIONS = 3
# Half the distance of two trainings: small, because Adam's first step bends where
# gradients are as small as 1e-8, and training jumps where a ReLU in it switches; not
# too small for gradient descent, whose slopes would drown in rounding.
EPSILON = {"adam": 1e-7, "sgd": 1e-5}

BuildPeer = Callable[[Task, Setting], Peer]


@dataclass(frozen=True)
class Candidate:
    """A peer, used in one way.

    Attributes:
        package: What it needs.
        build: Makes it.
        dtype: torch's default type of numbers while it works.
        only_adam: Whether the way makes a difference for Adam only.
    """

    package: str
    build: BuildPeer
    dtype: torch.dtype = torch.float64
    only_adam: bool = True


def _torch(task: Task, setting: Setting) -> Peer:
    from benchmarks.peers.with_torch import TorchPeer

    return TorchPeer(task, setting)


def _torchopt(task: Task, setting: Setting, **options: float) -> Peer:
    from benchmarks.peers.with_torchopt import TorchOptPeer

    return TorchOptPeer(task, setting, **options)


def _higher(task: Task, setting: Setting) -> Peer:
    from benchmarks.peers.with_higher import HigherPeer

    return HigherPeer(task, setting)


CANDIDATES = {
    "torch": Candidate("torch", _torch, only_adam=False),
    "torchopt": Candidate("torchopt", _torchopt, only_adam=False),
    "torchopt, eps_root=1e-20": Candidate(
        "torchopt", lambda task, setting: _torchopt(task, setting, eps_root=1e-20)
    ),
    "torchopt, eps_root=0 (its default)": Candidate(
        "torchopt", lambda task, setting: _torchopt(task, setting, eps_root=0.0)
    ),
    # It corrects the bias of the moments in torch's default type.
    "torchopt, default type float32": Candidate("torchopt", _torchopt, torch.float32),
    "higher": Candidate("higher", _higher, only_adam=False),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    add_cases(parser, datasets=["cora"], tau=5)
    parser.add_argument("--directions", type=count, default=DIRECTIONS)


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Compare on every case."""
    require_installed(arguments.who)
    for dataset in arguments.datasets:
        data = in_double(load_graph(dataset))
        for setting in _settings(arguments):
            case = Case(data, setting)
            for line in compare(case, arguments.who, arguments.directions):
                records.add({"dataset": dataset, **case.sizes(), **line})


def _settings(arguments: argparse.Namespace) -> Iterator[Setting]:
    for backbone in arguments.backbones:
        for hidden in arguments.hidden:
            # Without weight decay many gradients are exactly zero.
            for optimizer, decay in (("sgd", 5e-4), ("adam", 5e-4), ("adam", 0.0)):
                yield Setting(
                    backbone=backbone,
                    hidden=hidden,
                    tau=arguments.tau,
                    optimizer=optimizer,
                    dropout=0.0,
                    weight_decay=decay,
                )


def compare(case: Case, who: list[str], directions: int) -> list[dict[str, Any]]:
    """Compare the hypergradients of one case, one line each."""
    task, setting = case.task, case.setting
    ours = Ours(case.data, setting).hypergradient()
    units = _unit_vectors(directions, task.strength)
    right = _differences(PlainTraining, task, setting, units)
    common = {
        "optimizer": setting.optimizer,
        "weight_decay": setting.weight_decay,
        "norm": float(ours.norm()),
    }
    lines: list[dict[str, Any]] = []
    if OURS in who:
        error = relative_error(units @ ours, right)
        lines.append({**common, "who": OURS, "error": error})
    for name, candidate in CANDIDATES.items():
        if candidate.package not in who:
            continue
        if candidate.only_adam and setting.optimizer != "adam":
            continue
        with _default_dtype(candidate.dtype):
            found = candidate.build(task, setting).hypergradient()
            own = _differences(candidate.build, task, setting, units)
        line = {
            **common,
            "who": name,
            "finite": bool(found.isfinite().all()),
            "error": relative_error(units @ found, right),
            "error_of_own_training": relative_error(units @ found, own),
            "difference_to_ours": relative_error(found, ours),
        }
        lines.append(line)
    return lines


def relative_error(found: Tensor, right: Tensor) -> float:
    """Distance of two vectors over the length of the second."""
    return float((found - right).norm() / right.norm())


def _differences(
    build: Callable[[Task, Setting], Trainer],
    task: Task,
    setting: Setting,
    units: Tensor,
) -> Tensor:
    """Derivative of the loss after training along each direction, numerically."""

    def trained_loss(strength: Tensor) -> float:
        trainer = build(replace(task, strength=strength), setting)
        at = strength if setting.direct_term else task.strength
        return trainer.trained_loss(at)

    epsilon = EPSILON[setting.optimizer]
    slopes = [
        trained_loss(task.strength + epsilon * unit)
        - trained_loss(task.strength - epsilon * unit)
        for unit in units
    ]
    return units.new_tensor(slopes) / (2 * epsilon)


def _unit_vectors(number: int, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(number, len(like), dtype=like.dtype, generator=generator)
    return torch.nn.functional.normalize(rows, dim=1)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
