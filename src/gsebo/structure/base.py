"""What a structure is: something learnable that says how much each entry counts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from gsebo.sparse import Pattern, SparseFeatures
from gsebo.structure.topology import Topology

Normalise = Callable[[Pattern, Tensor], Tensor]
"""From entries and their weights ``[..., entries]`` to strengths."""

Predictions = Sequence[Tensor]
"""Class probabilities by several predictors, ``[nodes, classes]`` each."""


@dataclass(frozen=True, eq=False)
class Ground:
    """What a structure is laid over.

    Attributes:
        graph: The entries.
        start: Strengths of the vanilla propagation, ``[entries]``.
        num_layers: Number of propagations of the network.
        features: Of the nodes, ``[nodes, channels]``.
        normalise: The network's own propagation of a weighted graph.
        candidate: Which edges are not of the user's graph, but may become part of it,
            bool ``[edges]``; ``None`` where there are none.
    """

    graph: Topology
    start: Tensor
    num_layers: int
    features: Tensor | SparseFeatures
    normalise: Normalise
    candidate: Tensor | None = None


class Structure(nn.Module, ABC):
    """Strength of every entry of a graph, with parameters learned by the outer problem.

    A structure is configured by its constructor, laid over a graph by :meth:`setup`,
    and evaluated by :meth:`forward`. At the start it must give the vanilla propagation
    of the user's graph.
    """

    @abstractmethod
    def setup(self, ground: Ground) -> None:
        """Create the parameters for a graph."""

    @abstractmethod
    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        """Return the strengths, ``[entries]`` or ``[layers, entries]``.

        Args:
            graph: The entries.
            state: What is predicted of the nodes so far, for structures that use it.
        """

    @abstractmethod
    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the nearest allowed parameters."""

    def units(self) -> dict[str, Tensor]:
        """What counts as one in each parameter; a missing name: one does.

        A step of the trust region is measured in these units: for a strength, what the
        network itself gives the edge.
        """
        return {}
