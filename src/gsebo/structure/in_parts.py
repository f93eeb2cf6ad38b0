"""A structure that is learned from parts of a graph, one after another.

What all edges share is read whole at every step. What each entry has of its own is kept
in a table, of which a step reads and changes only the entries of its parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from gsebo.graph.topology import Topology
from gsebo.sparse import SparseFeatures
from gsebo.structure.base import Fixed, Ground, Normalise, Predictions, Structure


@dataclass(frozen=True, eq=False)
class PartGround:
    """A part of a graph that a structure is laid over.

    Attributes:
        graph: The entries of the part.
        nodes: Numbers of its nodes in the whole graph, int64 ``[nodes]``.
        edges: Numbers of its edges there, int64 ``[edges]``.
        features: Of its nodes.
        start: Strengths of the vanilla propagation of the whole graph, ``[entries]``.
        scale: How many entries of the whole graph each stands for, ``[entries]``.
        normalise: From weights ``[..., entries]`` to strengths, scaled as well.
        places: Where the numbers of its own of each entry are among those at hand,
            int64 ``[entries]`` or ``[edges]``.
        at_hand: How many of those are at hand.
    """

    graph: Topology
    nodes: Tensor
    edges: Tensor
    features: Tensor | SparseFeatures
    start: Tensor
    scale: Tensor
    normalise: Normalise
    places: Tensor
    at_hand: int

    def zeros(self, layers: tuple[int, ...]) -> nn.Parameter:
        """Stands for the numbers at hand, which come from outside; takes no room."""
        zero = self.start.new_zeros(())
        return nn.Parameter(zero.expand(*layers, self.at_hand))


class StructureInParts(ABC):
    """What is learned, and what a part of the graph makes of it.

    Attributes:
        own: Name of the parameter with a number for each entry, all zero at first;
            ``None`` where entries have nothing of their own.
        layers: Its leading axes.
        loops: Whether self-loops have such a number, too.
    """

    own: str | None
    layers: tuple[int, ...] = ()
    loops: bool = False

    @abstractmethod
    def shared(self) -> dict[str, Tensor]:
        """What all entries share, before anything is learned."""

    @abstractmethod
    def over(self, ground: PartGround) -> Structure:
        """Lay the structure over a part.

        Its parameters have the names of :meth:`shared` and ``own``.
        """

    @abstractmethod
    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """Return the nearest allowed parameters.

        Args:
            outer: What is shared, and the numbers at hand.
            start: Vanilla strengths of the entries at hand.
        """

    def units(self, start: Tensor) -> dict[str, Tensor]:
        """What counts as one, as :meth:`gsebo.structure.Structure.units` says it.

        Args:
            start: Vanilla strengths of the entries at hand.
        """
        return {}


@final
class EdgesInParts(StructureInParts):
    """One strength per entry, as :class:`~gsebo.structure.EdgeStrength`.

    Args:
        layers: Number of layers with strengths of their own; ``None``: shared.
        learn_self_loops: Learn the strengths of the self-loops too.
    """

    own = "change"

    def __init__(self, *, layers: int | None, learn_self_loops: bool) -> None:
        self.layers = () if layers is None else (layers,)
        self.loops = learn_self_loops

    def shared(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def over(self, ground: PartGround) -> Structure:
        """The strengths of the entries of a part."""
        return _EdgesOfPart(ground, self.layers)

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """Clip every strength to [0, 1]."""
        return {"change": torch.clamp(outer["change"], -start, 1 - start)}

    def units(self, start: Tensor) -> dict[str, Tensor]:
        """The strength at the start."""
        return {"change": start}


@final
class _EdgesOfPart(Structure):
    change: nn.Parameter

    def __init__(self, ground: PartGround, layers: tuple[int, ...]) -> None:
        super().__init__()
        self._ground = ground
        self.change = ground.zeros(layers)

    def setup(self, ground: Ground) -> None:
        """Nothing: a part is laid out when it is made."""

    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        """Strengths of the entries, each standing for several, ``[..., entries]``."""
        ground = self._ground
        change = self.change.index_select(-1, ground.places)
        missing = ground.start.numel() - change.shape[-1]
        if missing:
            change = nn.functional.pad(change, (0, missing))
        return (ground.start + change) * ground.scale

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """Not asked of a part."""
        return outer


@final
class VanillaInParts(StructureInParts):
    """The network's own propagation: nothing is learned."""

    own = None

    def shared(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def over(self, ground: PartGround) -> Structure:
        """The vanilla strengths of a part."""
        kept = Fixed()
        kept.register_buffer("start", ground.start * ground.scale)
        return kept

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """Nothing to project."""
        return outer
