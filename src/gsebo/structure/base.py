"""What a structure is: something learnable that says how much each entry counts.

On batches, what all edges share is read whole at every step. What each entry has of its
own is kept in a table, of which a step reads and changes only the entries that it met.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.graph.topology import Topology
from gsebo.sparse import Pattern, SparseFeatures

Normalise = Callable[[Pattern, Tensor], Tensor]
"""From entries and their weights ``[..., entries]`` to strengths."""

Predictions = Sequence[Tensor]
"""Class probabilities by several predictors, ``[nodes, classes]`` each."""


@dataclass(frozen=True, eq=False)
class GraphContext:
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
    def setup(self, context: GraphContext) -> None:
        """Create the parameters for a graph."""

    @abstractmethod
    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        """Return the strengths, ``[entries]`` or ``[layers, entries]``.

        ``state`` is what is predicted of the nodes so far, for structures that use it.
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

    def setup(self, context: GraphContext) -> None:
        start, num_layers = context.start, context.num_layers
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
        return self.start

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        return outer


@dataclass(frozen=True, eq=False)
class BatchContext:
    """A part of a graph that a structure is laid over.

    Attributes:
        nodes: Numbers of its nodes in the whole graph, int64 ``[nodes]``.
        edges: Numbers of its edges there, int64 ``[edges]``.
        start: Strengths of the vanilla propagation of the whole graph, ``[entries]``.
        scale: How many entries of the whole graph each stands for, ``[entries]``.
        normalise: From weights ``[..., entries]`` to strengths, scaled as well.
        places: Where the numbers of its own of each entry are among the ``at_hand``
            ones, int64 ``[entries]`` or ``[edges]``.
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


class BatchedStructure(ABC):
    """What is learned, and what a part of the graph makes of it.

    Attributes:
        own: Name of the parameter with a number for each entry, all zero at first;
            ``None`` where entries have nothing of their own.
        layers: Its leading axes.
        loops: Whether self-loops have such a number, too.
    """

    def __init__(
        self,
        own: str | None = None,
        layers: tuple[int, ...] = (),
        *,
        loops: bool = False,
    ) -> None:
        self.own, self.layers, self.loops = own, layers, loops

    @abstractmethod
    def shared(self) -> dict[str, Tensor]:
        """What all entries share, before anything is learned."""

    @abstractmethod
    def over(self, context: BatchContext) -> Structure:
        """Lay the structure over a part.

        Its parameters have the names of :meth:`shared` and ``own``.
        """

    @abstractmethod
    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """Return the nearest allowed parameters, by vanilla strengths at hand."""

    def units(self, start: Tensor) -> dict[str, Tensor]:
        """What counts as one, as :meth:`gsebo.structure.Structure.units` says it."""
        return {}


@final
class BatchedFixed(BatchedStructure):
    """The network's own propagation: nothing is learned."""

    def shared(self) -> dict[str, Tensor]:
        return {}

    def over(self, context: BatchContext) -> Structure:
        kept = Fixed()
        kept.register_buffer("start", context.start * context.scale)
        return kept

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        return outer
