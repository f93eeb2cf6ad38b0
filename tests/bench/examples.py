"""A tiny graph in float64, and what needs the peers."""

from dataclasses import replace

import pytest
import torch
from benchmarks.case import Case
from benchmarks.graphs import in_double
from benchmarks.setting import Setting

import gsebo

# Kernels of attention in double precision over five channels are compiled for other
# tests too.
BASE = Setting(hidden=5, tau=3, dropout=0.0)


def tiny_case(**changes: object) -> Case:
    graph = gsebo.generate_graph(
        40, num_classes=3, average_degree=4, num_features=6, split="random:40/40/20"
    )
    return Case(in_double(graph), replace(BASE, **changes))


def peer(name: str):
    """A parameter of a test that is skipped where the peer is not installed."""
    return pytest.param(name, marks=needs(name))


def needs(name: str):
    reason = f"{name} is not installed: pip install -e '.[bench]'"
    from importlib.util import find_spec

    return pytest.mark.skipif(find_spec(name) is None, reason=reason)


def distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())
