"""Strengths of edges within classes, between classes and of false ones, over seeds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gsebo.experiments import Result
from gsebo.experiments.edge_outcome import GroupName, GroupOutcome
from gsebo.report.summary import Summary

GROUPS: tuple[GroupName, ...] = ("within", "between", "false")


@dataclass(frozen=True)
class EdgeGroup:
    """A group of edges over all layers and seeds.

    Attributes:
        share: Percent of the group's edges in each bar, mean over seeds.
        ratio: Strength relative to the start.
        zero: Percent of the edges that have no strength left, mean over seeds.
    """

    share: NDArray[np.float64]
    ratio: Summary
    zero: float


def edge_groups(results: Mapping[int, Result]) -> dict[str, EdgeGroup]:
    """Pool what is stored of a cell, by the name of the group."""
    found: dict[str, EdgeGroup] = {}
    for name in GROUPS:
        shares, zeros = [], []
        ratios: dict[int, float] = {}
        for seed, result in results.items():
            groups = (layer[name] for layer in result.edges or () if name in layer)
            # Without any edge that had a strength at the start there is no mean.
            layers = [group for group in groups if group["mean"] is not None]
            if not layers:
                continue
            bars = np.array([layer["histogram"] for layer in layers], dtype=np.float64)
            shares.append(100 * bars.sum(axis=0) / bars.sum())
            zeros.append(float(np.mean([_zero(layer) for layer in layers])))
            ratios[seed] = float(np.mean([layer["mean"] for layer in layers]))
        if ratio := Summary.of(ratios):
            share = np.mean(shares, axis=0)
            found[name] = EdgeGroup(share, ratio, float(np.mean(zeros)))
    return found


def _zero(layer: GroupOutcome) -> float:
    return 100 * layer["zero"] / layer["count"]
