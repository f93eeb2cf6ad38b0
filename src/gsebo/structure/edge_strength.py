"""One strength per edge: the generic structure extractor of the paper.

    GSE(Z) = clip(Z) ⊙ (A + I),    clip(x) = min(max(x, 0), 1)

The parameter is the change Z - Z0, so that it starts at zero for every backbone, and it
is projected after each outer step instead of clamped in the forward pass: an entry that
a clamp has cut off would never receive a gradient again.

Where the edges of a graph have weights, Z0 is the network's propagation of the weighted
graph. A strength that starts above one may fall and come back, but not rise; an edge of
weight zero is none, and stays at zero.
"""

from typing import Literal, final, get_args

import torch
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.graph.topology import Topology
from gsebo.structure.base import (
    BatchContext,
    BatchedStructure,
    GraphContext,
    Predictions,
    Structure,
)

InitialStrength = Literal["vanilla", "uniform", "ones", "random"]


@final
class EdgeStrength(Structure):
    """One learnable strength per entry of A + I, in [0, 1] where none starts higher.

    Args:
        per_layer: Learn one set of strengths for each layer instead of a shared one.
        tied: Let (i, j) and (j, i) change by the same amount.
        learn_self_loops: Learn the strengths of the self-loops too.
        initial_strength: Where learning begins: ``"vanilla"`` at the network's own
            propagation; ``"uniform"`` at its mean for every entry; at ``"ones"``; or
            ``"random"`` between 0 and 1, by torch's seed.
    """

    change: nn.Parameter
    start: Tensor
    unit: Tensor
    lower: Tensor
    upper: Tensor
    owner: Tensor | None

    def __init__(
        self,
        *,
        per_layer: bool = False,
        tied: bool = False,
        learn_self_loops: bool = True,
        initial_strength: InitialStrength = "vanilla",
    ) -> None:
        super().__init__()
        if initial_strength not in get_args(InitialStrength):
            raise InvalidInput(
                f"initial_strength={initial_strength!r} given; expected one of: "
                f"{', '.join(get_args(InitialStrength))}."
            )
        self.per_layer = per_layer
        self.tied = tied
        self.learn_self_loops = learn_self_loops
        self.initial_strength = initial_strength

    def setup(self, context: GraphContext) -> None:
        """Start at the vanilla strengths, one parameter per learned entry."""
        graph, start = context.graph, context.start
        if self.tied and graph.graph.types is not None:
            raise InvalidInput(
                "tied=True given for a graph with several types or relations, where "
                "an edge back is another one; expected tied=False."
            )
        learned = graph.num_entries if self.learn_self_loops else graph.num_edges
        owner = _pair_of_entry(graph)[:learned] if self.tied else None
        # A parameter may move as far as each of its entries stays inside [0, 1].
        absent = None if graph.weights is None else graph.weights == 0
        lower, upper = -start[:learned], _room(start, absent)[:learned]
        if owner is not None:
            size = int(owner.max()) + 1 if learned else 0
            lower = lower.new_zeros(size).scatter_reduce_(
                0, owner, lower, "amax", include_self=False
            )
            upper = upper.new_zeros(size).scatter_reduce_(
                0, owner, upper, "amin", include_self=False
            )
        shape = (context.num_layers, lower.numel()) if self.per_layer else lower.shape
        change = self._first_change(start[:learned], owner, lower.numel())
        change = torch.clamp(change, lower, upper).expand(shape)
        self.change = nn.Parameter(change.clone())
        # As much as there is to lose, at the network's own strength or at the start.
        self.register_buffer("unit", torch.maximum(-lower, change - lower))
        self.register_buffer("start", start)
        self.register_buffer("lower", lower)
        self.register_buffer("upper", upper)
        self.register_buffer("owner", owner)

    def _first_change(self, start: Tensor, owner: Tensor | None, size: int) -> Tensor:
        """Of each parameter, in all layers; for two entries, the mean of theirs."""
        if self.initial_strength == "vanilla":
            return start.new_zeros(size)
        wanted = torch.ones_like(start)
        if self.initial_strength == "uniform":
            wanted *= start.mean()
        elif self.initial_strength == "random":
            # Drawn on the CPU, so that every device begins at the same place.
            wanted = torch.rand(start.numel(), dtype=start.dtype).to(start.device)
        if owner is None:
            return wanted - start
        return start.new_zeros(size).scatter_reduce_(
            0, owner, wanted - start, "mean", include_self=False
        )

    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        change: Tensor = self.change
        if self.owner is not None:
            change = change.index_select(-1, self.owner)
        missing = self.start.numel() - change.shape[-1]
        if missing:
            change = nn.functional.pad(change, (0, missing))
        return self.start + change

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"change": torch.clamp(outer["change"], self.lower, self.upper)}

    def units(self) -> dict[str, Tensor]:
        """The strength at the start: a change by one unit removes an edge."""
        return {"change": self.unit}


def _room(start: Tensor, absent: Tensor | None) -> Tensor:
    """How far strengths may rise: up to one, but not those of absent edges."""
    room = (1 - start).clamp(min=0)
    return room if absent is None else room.masked_fill(absent, 0)


def _pair_of_entry(graph: Topology) -> Tensor:
    """Number the unordered pairs and the loops, ``[entries]``."""
    reverse = graph.reverse_edge
    entry = torch.arange(graph.num_entries, device=reverse.device)
    edge = entry[: graph.num_edges]
    first = torch.where(reverse >= 0, torch.minimum(edge, reverse), edge)
    pair = torch.cat([first, entry[graph.num_edges :]])
    number: Tensor = torch.unique(pair, return_inverse=True)[1]
    return number


@final
class BatchedEdgeStrength(BatchedStructure):
    """One strength per entry, as :class:`~gsebo.structure.EdgeStrength`."""

    def __init__(self, *, layers: int | None, learn_self_loops: bool) -> None:
        lead = () if layers is None else (layers,)
        super().__init__("change", lead, loops=learn_self_loops)

    def shared(self) -> dict[str, Tensor]:
        return {}

    def over(self, context: BatchContext) -> Structure:
        return _EdgesOfBatch(context, self.layers)

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        return {
            "change": torch.clamp(outer["change"], -start, _room(start, start == 0))
        }

    def units(self, start: Tensor) -> dict[str, Tensor]:
        return {"change": start}


@final
class _EdgesOfBatch(Structure):
    change: nn.Parameter

    def __init__(self, context: BatchContext, layers: tuple[int, ...]) -> None:
        super().__init__()
        self._context = context
        self.change = context.zeros(layers)

    def setup(self, context: GraphContext) -> None:
        """Nothing: a part is laid out when it is made."""

    def forward(self, graph: Topology, state: Predictions | None = None) -> Tensor:
        context = self._context
        change = self.change.index_select(-1, context.places)
        missing = context.start.numel() - change.shape[-1]
        if missing:
            change = nn.functional.pad(change, (0, missing))
        return (context.start + change) * context.scale

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        """Not asked of a part."""
        return outer
