"""The part of a graph that the scores of some nodes depend on, numbered compactly."""

from typing import final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.peers.products import Constant, Places, project
from benchmarks.setting import LAYERS
from benchmarks.task import Task

# Of the features: on a CPU with 16 columns both products take as long at some 0.4.
_SPARSE_BELOW = 0.4


@final
class Reach:
    """Nodes and entries within ``LAYERS`` steps of some nodes, nearest first.

    What a layer needs is then always the first so many nodes, and the first so many
    entries.

    Args:
        task: The whole graph.
        nodes: Whose scores are wanted.

    Attributes:
        entries: Numbers of the entries in the whole graph, row by row.
        sizes: How many nodes the input and each layer's output have.
        places: Where the matrix of each layer has entries.
        labels: Classes of the nodes whose scores are wanted.
    """

    def __init__(self, task: Task, nodes: Tensor) -> None:
        source, target = task.edge_index
        kept = nodes
        number = torch.full_like(task.labels, -1, dtype=torch.long)
        number[nodes] = torch.arange(len(nodes), device=nodes.device)
        sizes = [len(nodes)]
        for _ in range(LAYERS):
            near = source[number[target] >= 0].unique()
            fresh = near[number[near] < 0]
            number[fresh] = sizes[-1] + torch.arange(len(fresh), device=nodes.device)
            kept = torch.cat([kept, fresh])
            sizes.append(len(kept))
        self.sizes = sizes[::-1]
        rows = number[target]
        wanted = ((rows >= 0) & (rows < sizes[LAYERS - 1])).nonzero().squeeze(-1)
        self.entries = wanted[torch.argsort(rows[wanted], stable=True)]
        rows, columns = rows[self.entries], number[source[self.entries]]
        self.places = [
            Places(
                rows[: int((rows < size).sum())],
                columns[: int((rows < size).sum())],
                size,
                before,
                task.strength,
            )
            for before, size in zip(self.sizes, self.sizes[1:], strict=False)
        ]
        self.features = Features(task.x, kept, self.sizes[:2])
        self.labels = task.labels[nodes]

    def strengths(self, strength: Tensor) -> list[Tensor]:
        """Those of the entries that each layer sees, of those of the whole graph."""
        near = strength.index_select(0, self.entries)
        return [near[: len(places.rows)] for places in self.places]

    def loss(self, scores: Tensor, reduction: str) -> Tensor:
        """Cross-entropy of the nodes whose scores were wanted."""
        return cross_entropy(scores, self.labels, reduction=reduction)


@final
class Features:
    """Features of some nodes, sparse where few of them are not zero.

    Args:
        x: Of the whole graph, dense.
        nodes: Which nodes, in their order.
        sizes: How many of the first nodes a product may be asked for.
    """

    def __init__(self, x: Tensor, nodes: Tensor, sizes: list[int]) -> None:
        number = torch.full((len(x),), -1, device=x.device)
        number[nodes] = torch.arange(len(nodes), device=x.device)
        found, columns = x.nonzero(as_tuple=True)
        rows = number[found]
        here = (rows >= 0).nonzero().squeeze(-1)
        here = here[torch.argsort(rows[here], stable=True)]
        self._dense = len(here) >= _SPARSE_BELOW * len(nodes) * x.shape[1]
        if self._dense:
            self.values = x[nodes]
            return
        self.values = x[found[here], columns[here]]
        rows, columns = rows[here], columns[here]
        self._places = {}
        for size in dict.fromkeys(sizes):
            many = int((rows < size).sum())
            self._places[size] = Places(
                rows[:many], columns[:many], size, x.shape[1], x
            )
        self._whole = {size: self._constant(self.values, size) for size in sizes}

    def times(self, values: Tensor, weight: Tensor, size: int) -> Tensor:
        """The first nodes' features times a weight.

        Args:
            values: All of ``self.values``, or what dropout left of them.
            weight: ``[features, channels]``.
            size: Number of nodes.
        """
        if self._dense:
            return values[:size] @ weight
        if values is self.values:
            return project(self._whole[size], weight)
        return project(self._constant(values, size), weight)

    def _constant(self, values: Tensor, size: int) -> Constant:
        places = self._places[size]
        return Constant(places, values[: len(places.rows)])
