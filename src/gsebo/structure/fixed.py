"""A propagation that stays as it is."""

from typing import final

from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.structure.base import Ground, Predictions, Structure
from gsebo.structure.topology import Topology


@final
class Fixed(Structure):
    """The vanilla propagation, or a given one; nothing to learn.

    Args:
        strengths: To keep instead of the vanilla ones, ``[entries]`` or
            ``[layers, entries]``.
    """

    start: Tensor

    def __init__(self, strengths: Tensor | None = None) -> None:
        super().__init__()
        self._given = strengths

    def setup(self, ground: Ground) -> None:
        """Keep the strengths."""
        start, num_layers = ground.start, ground.num_layers
        given = self._given
        if given is None:
            self.register_buffer("start", start)
            return
        fits = given.shape[-1:] == start.shape and (
            given.dim() == 1 or given.shape[:-1] == (num_layers,)
        )
        if not fits:
            raise InvalidInput(
                f"strengths of shape {list(given.shape)} given; expected "
                f"[{start.numel()}] or [{num_layers}, {start.numel()}], for the "
                "entries and layers of the network."
            )
        self.register_buffer("start", given.to(start))

    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        """Return the strengths, ``[entries]`` or ``[layers, entries]``."""
        return self.start

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """There is nothing to project."""
        return outer
