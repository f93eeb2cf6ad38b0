"""The given graph, unchanged."""

from typing import final

from torch import Tensor

from gsebo.structure.base import Structure
from gsebo.structure.topology import Topology


@final
class Fixed(Structure):
    """The vanilla propagation; nothing to learn."""

    start: Tensor

    def setup(self, graph: Topology, start: Tensor, num_layers: int) -> None:
        """Keep the vanilla strengths."""
        self.register_buffer("start", start)

    def forward(self, graph: Topology, state: Tensor | None = None) -> Tensor:
        """Return the vanilla strengths, ``[entries]``."""
        return self.start

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """There is nothing to project."""
        return outer
