"""What a structure is: something learnable that says how much each entry counts."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from gsebo.structure.topology import Topology


class Structure(nn.Module, ABC):
    """Strength of every entry of a graph, with parameters learned by the outer problem.

    A structure is configured by its constructor, laid over a graph by :meth:`setup`,
    and evaluated by :meth:`forward`. At the start it must give the vanilla propagation.
    """

    @abstractmethod
    def setup(self, graph: Topology, start: Tensor, num_layers: int) -> None:
        """Create the parameters for ``graph``.

        Args:
            graph: The entries.
            start: Strengths of the vanilla propagation, ``[entries]``.
            num_layers: Number of propagations of the backbone.
        """

    @abstractmethod
    def forward(self, graph: Topology, state: Tensor | None = None) -> Tensor:
        """Return the strengths, ``[entries]`` or ``[layers, entries]``.

        Args:
            graph: The entries.
            state: Class probabilities of the nodes so far, for structures that use
                them.
        """

    @abstractmethod
    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the nearest allowed parameters."""
