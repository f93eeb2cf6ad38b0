"""Features for graphs that came without any: what the edges say of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.canonical import canonicalise
from gsebo.data.features import csr_tensor
from gsebo.data.preparation import Preparation, exactly, has_features
from gsebo.errors import InvalidInput
from gsebo.files import Form


@final
@dataclass(frozen=True, eq=False)
class Degree(Preparation):
    """The number of neighbours, one column for each range of numbers.

    The ranges grow with the degree: 0, 1, 2, 3, then two ranges for each doubling.

    Attributes:
        bins: Number of columns; what a larger degree than any in the graph of the fit
            has in common with the largest one there.
    """

    name = "degree"
    bins: Tensor

    @classmethod
    def fit(cls, data: Data) -> Self:
        """Look for the largest degree."""
        return cls(_degree_bins(data).max() + 1)

    @classmethod
    def suits(cls, data: Data) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"bins": exactly(num_features)}

    def features(self, data: Data) -> Tensor:
        """One column of each row is 1."""
        bins = int(self.bins)
        return _one_of(_degree_bins(data).clamp(max=bins - 1), bins)


@final
@dataclass(frozen=True, eq=False)
class Identity(Preparation):
    """A column for every node: each learns on its own, and none can be new.

    Attributes:
        nodes: Number of nodes.
    """

    name = "identity"
    nodes: Tensor

    @classmethod
    def fit(cls, data: Data) -> Self:
        """Count the nodes."""
        return cls(torch.tensor(int(data.num_nodes)))

    @classmethod
    def suits(cls, data: Data) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"nodes": exactly(num_features)}

    def features(self, data: Data) -> Tensor:
        """The identity matrix."""
        nodes = _same_nodes(data, int(self.nodes))
        return _one_of(torch.arange(nodes), nodes)


@final
@dataclass(frozen=True, eq=False)
class DegreeAndIdentity(Preparation):
    """Both, side by side.

    Attributes:
        bins: As in :class:`Degree`.
        nodes: As in :class:`Identity`.
    """

    name = "degree+identity"
    bins: Tensor
    nodes: Tensor

    @classmethod
    def fit(cls, data: Data) -> Self:
        """Look for the largest degree and count the nodes."""
        return cls(Degree.fit(data).bins, Identity.fit(data).nodes)

    @classmethod
    def suits(cls, data: Data) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        bins = num_features - num_nodes
        return {"bins": exactly(bins), "nodes": exactly(num_nodes)}

    def features(self, data: Data) -> Tensor:
        """Two columns of each row are 1."""
        nodes, bins = _same_nodes(data, int(self.nodes)), int(self.bins)
        first = _degree_bins(data).clamp(max=bins - 1)
        columns = torch.stack([first, bins + torch.arange(nodes)], dim=1)
        return _ones_at(columns, bins + nodes)


def _degree_bins(data: Data) -> Tensor:
    """Range of each node's degree; of a directed graph both directions count."""
    graph = canonicalise(data)
    ends = graph.edge_index.cpu()
    reverse = graph.reverse_edge.cpu() >= 0
    # An undirected edge is stored twice but is one neighbour.
    one_way = torch.cat([ends[1], ends[0][~reverse]])
    degree = torch.bincount(one_way, minlength=graph.num_nodes)
    fine = (2 * (degree.double().clamp(min=1) / 2).log2()).floor().long() + 2
    return torch.where(degree < 4, degree, fine)


def _same_nodes(data: Data, expected: int) -> int:
    nodes = int(data.num_nodes)
    if nodes != expected:
        raise InvalidInput(
            f"the graph has {nodes} nodes; expected the {expected} of the fit, because "
            "without features nodes were told apart by their numbers."
        )
    return nodes


def _one_of(column: Tensor, columns: int) -> Tensor:
    return _ones_at(column.unsqueeze(1), columns)


def _ones_at(columns: Tensor, width: int) -> Tensor:
    """Rows with a one in each of the given columns, ``[rows, ones per row]``."""
    rows, ones = columns.shape
    starts = torch.arange(0, rows * ones + 1, ones)
    return csr_tensor(starts, columns.flatten(), torch.ones(rows * ones), (rows, width))
