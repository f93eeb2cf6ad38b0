"""How far predictions agree at both ends of an edge, and how sure they are."""

from typing import final

import torch
from torch import Tensor

from gsebo.sparse import sddmm
from gsebo.structure.base import Predictions
from gsebo.structure.topology import Topology

_PREDICTORS = 2
_PER_PREDICTOR = 3
NUM_AGREEMENTS = _PREDICTORS * _PER_PREDICTOR
"""Numbers that predictions by two predictors say of an edge."""
# Predictions whose agreement is remembered: the guesses and predictions of a round.
_REMEMBERED = 12


@final
class Agreements:
    """What predictions say of edges; the last ones are remembered."""

    def __init__(self) -> None:
        self._seen: list[tuple[Topology, Tensor, Tensor]] = []

    def of(self, graph: Topology, state: Predictions | None, like: Tensor) -> Tensor:
        """Agreement and confidence, ``[edges, numbers]``.

        Args:
            graph: The entries.
            state: Class probabilities of its nodes by two predictors; without any, all
                numbers are zero.
            like: Gives device and type.
        """
        if state is None:
            return like.new_zeros(graph.num_edges, NUM_AGREEMENTS)
        return torch.cat([self._columns(graph, one) for one in state], dim=-1)

    def forget(self) -> None:
        """Let go of the predictions that were looked at."""
        self._seen = []

    def _columns(self, graph: Topology, predicted: Tensor) -> Tensor:
        # Asked several times in an outer step, and for a guess in every one.
        for place, (where, what, columns) in enumerate(self._seen):
            if where is graph and what is predicted:
                self._seen.append(self._seen.pop(place))
                return columns
        columns = _agreement(graph, predicted)
        self._seen = [*self._seen[1 - _REMEMBERED :], (graph, predicted, columns)]
        return columns


@torch.no_grad()
def _agreement(graph: Topology, predicted: Tensor) -> Tensor:
    edges = slice(0, graph.num_edges)
    target = graph.pattern.row_of_entry[edges]
    source = graph.pattern.column_of_entry[edges]
    predicted = predicted.contiguous()
    agree = sddmm(graph.pattern, predicted, predicted)[edges]
    sure = predicted.amax(dim=-1)
    ends = sure[target], sure[source]
    columns = [agree, torch.minimum(*ends), torch.maximum(*ends)]
    return 2 * torch.stack(columns, dim=-1) - 1
