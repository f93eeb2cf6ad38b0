"""Which labelled nodes networks learn from, and which they are judged by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from gsebo.training.problem import NodeClassification


class Division(ABC):
    """Which labelled nodes a step trains on, and which it is judged by.

    Attributes:
        num_networks: Number of networks that take turns.
    """

    num_networks: int

    @abstractmethod
    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """Nodes to train on and nodes to judge by in an outer step, from 0."""

    def problem(self, base: NodeClassification, step: int) -> NodeClassification:
        """The problem of an outer step; steps count from 0."""
        return base.with_nodes(*self.nodes(step))

    @abstractmethod
    def held_out(self, network: int) -> Tensor:
        """Labelled nodes that one of the networks never learns from."""


@final
class Folds(Division):
    """Parts that stay as they are; each network leaves one of them out.

    Args:
        inner: Nodes that each network learns from.
        outer: Nodes that each is judged by.
    """

    def __init__(self, inner: Sequence[Tensor], outer: Sequence[Tensor]) -> None:
        self._inner, self._outer = inner, outer
        self._problems: dict[int, NodeClassification] = {}
        self.num_networks = len(inner)

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """The nodes of the network whose turn it is."""
        turn = step % self.num_networks
        return self._inner[turn], self._outer[turn]

    def problem(self, base: NodeClassification, step: int) -> NodeClassification:
        """The problem of the network whose turn it is, always the same one."""
        turn = step % self.num_networks
        if turn not in self._problems:
            self._problems[turn] = base.with_nodes(*self.nodes(step))
        return self._problems[turn]

    def held_out(self, network: int) -> Tensor:
        """The part that the network leaves out."""
        return self._outer[network]


@final
class Redrawn(Division):
    """All labelled nodes divided anew before each step, for one network.

    Every division has kernel calls of its own, which takes time, above all on a GPU.

    Args:
        labelled: The nodes.
        inner_share: Share of them that is trained on.
        seed: Of all divisions.
    """

    num_networks = 1

    def __init__(self, labelled: Tensor, inner_share: float, seed: int) -> None:
        self._labelled = labelled
        count = round(inner_share * labelled.numel())
        self._inner_count = min(max(count, 1), labelled.numel() - 1)
        self._seed = seed

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """The division of this step: a function of seed and step."""
        # A generator takes no more than 63 bits.
        seed = (self._seed * 1_000_003 + step) % 2**63
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self._labelled.numel(), generator=generator)
        shuffled = self._labelled[order.to(self._labelled.device)]
        inner, outer = shuffled[: self._inner_count], shuffled[self._inner_count :]
        return inner.sort().values, outer.sort().values

    def held_out(self, network: int) -> Tensor:
        """None: the network has learned from every node at some time."""
        return self._labelled[:0]
