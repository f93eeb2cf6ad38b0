"""What is done to node features before a network reads them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.files import Form
from gsebo.graph.arrays import canonicalise
from gsebo.graph.features import csr_tensor, normalise_rows
from gsebo.graph.graph import Graph
from gsebo.lookup import lookup

# Below this share of non-zeros a matrix stays sparse: no mean is subtracted from it.
# It is the share below which networks read features as a sparse matrix.
_SPARSE_BELOW = 0.25
# A column whose mean and standard deviation are that near to 0 and 1 is standardised.
_NEARLY = 0.01


@dataclass(frozen=True, eq=False)
class Preparation(ABC):
    """A way to make features, fitted to one graph and applied to this and others.

    What is fitted are tensors, so that it can be stored beside a network.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(cls, data: Graph) -> Self:
        """Learn what is needed from a graph; no labels are read."""

    @classmethod
    @abstractmethod
    def suits(cls, data: Graph) -> bool:
        """Whether it makes sense for a graph, and is not the same as ``"given"``."""

    @abstractmethod
    def features(self, data: Graph) -> Tensor:
        """Features of every node of a graph, dense or ``sparse_csr``."""

    @final
    def apply(self, data: Graph) -> Graph:
        """Return a shallow copy of a graph with the prepared features."""
        prepared = copy.copy(data)
        prepared.x = self.features(data)
        return prepared

    @final
    def tensors(self) -> dict[str, Tensor]:
        """What was fitted, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    @abstractmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What :meth:`tensors` has to be of a model, by name.

        Args:
            num_features: Number of columns that it makes.
            num_nodes: Number of nodes of the graph of the fit.
            dtype: Of the model's numbers.
        """

    @classmethod
    @final
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Self:
        """Rebuild it from :meth:`tensors`, which are as :meth:`forms` says."""
        return cls(**tensors)


@final
@dataclass(frozen=True, eq=False)
class Given(Preparation):
    """The features as they are.

    Attributes:
        columns: Number of features.
    """

    name = "given"
    columns: Tensor

    @classmethod
    def fit(cls, data: Graph) -> Self:
        """Remember the number of features."""
        return cls(torch.tensor(given_features(data).shape[1]))

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Wherever there are features."""
        return has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"columns": exactly(num_features)}

    def features(self, data: Graph) -> Tensor:
        """The features as they are."""
        return given_features(data, int(self.columns))


@final
@dataclass(frozen=True, eq=False)
class Rows(Preparation):
    """Each row divided by its sum, as is usual for counts of words.

    Attributes:
        columns: Number of features.
    """

    name = "rows"
    columns: Tensor

    @classmethod
    def fit(cls, data: Graph) -> Self:
        """Remember the number of features."""
        return cls(torch.tensor(given_features(data).shape[1]))

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Where nothing is negative and the rows have different sums."""
        if not has_features(data) or bool((_stored(data.x) < 0).any()):
            return False
        x = given_features(data)
        return not torch.allclose(_stored(normalise_rows(x)), _stored(x))

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"columns": exactly(num_features)}

    def features(self, data: Graph) -> Tensor:
        """The features with rows that sum to one; rows of zeros stay."""
        return normalise_rows(given_features(data, int(self.columns)))


@final
@dataclass(frozen=True, eq=False)
class Standard(Preparation):
    """Each column to variance 1 and, unless most features are zero, to mean 0.

    Attributes:
        mean: What is subtracted, ``[features]``; zero where most features are zero.
        scale: What is divided by, ``[features]``.
    """

    name = "standard"
    mean: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, data: Graph) -> Self:
        """Take mean and standard deviation over all nodes."""
        x = given_features(data)
        rows = x.shape[0]
        stored = int(torch.count_nonzero(_stored(x)))
        mean = _column_sums(x) / rows
        # Numbers of float64 keep a column that is nearly constant from breaking it.
        variance = _column_sums(x, power=2) / rows - mean.square()
        spread = variance.clamp(min=0).sqrt()
        constant = spread <= 1e-6 * mean.abs()
        scale = torch.where(constant, 1.0, spread).to(x.dtype)
        if stored < _SPARSE_BELOW * x.numel():
            mean = torch.zeros_like(mean)
        return cls(mean.to(x.dtype), scale)

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Wherever there are features that it would change."""
        if not has_features(data):
            return False
        fitted = cls.fit(data)
        near = (fitted.scale - 1).abs() + fitted.mean.abs() < _NEARLY
        return not bool(near.all())

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        each = Form(dtype, (num_features,))
        return {"mean": each, "scale": replace(each, low=0)}

    def features(self, data: Graph) -> Tensor:
        """The features with the columns of the fit's graph standardised."""
        x = given_features(data, len(self.scale))
        scale, mean = self.scale.to(x.device, x.dtype), self.mean.to(x.device, x.dtype)
        if x.layout != torch.sparse_csr:
            return (x - mean) / scale
        if bool(mean.any()):
            return (x.to_dense() - mean) / scale
        starts, columns = x.crow_indices(), x.col_indices()
        values = x.values() / scale[columns]
        return csr_tensor(starts, columns, values, (x.shape[0], x.shape[1]))


def exactly(number: int) -> Form:
    """A tensor that holds one known number."""
    return Form(torch.int64, (), low=number, high=number + 1)


def has_features(data: Graph) -> bool:
    """Whether a graph came with features."""
    return "x" in data and data.x is not None


def given_features(data: Graph, expected: int | None = None) -> Tensor:
    """Return the features of a graph in single or double precision.

    Args:
        data: The graph.
        expected: Number of features of the graph of the fit, if there was one.
    """
    if not has_features(data):
        raise InvalidInput(
            f"the graph has no x; expected {expected} features per node, as in the "
            "graph of the fit."
        )
    x: Tensor = data.x.detach()
    if expected is not None and x.shape[1] != expected:
        raise InvalidInput(
            f"the graph has {x.shape[1]} features per node; expected {expected}, as in "
            "the graph of the fit."
        )
    return x if x.dtype == torch.float64 else x.float()


def _stored(x: Tensor) -> Tensor:
    return x.values() if x.layout == torch.sparse_csr else x


def _column_sums(x: Tensor, power: int = 1) -> Tensor:
    """Sum of each column's powers, in double precision."""
    if x.layout != torch.sparse_csr:
        # The cast is a copy of the matrix, so that it is done once for all columns.
        return x.double().pow(power).sum(0)
    sums = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    return sums.index_add(0, x.col_indices(), x.values().double().pow(power))


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
    def fit(cls, data: Graph) -> Self:
        """Look for the largest degree."""
        return cls(_degree_bins(data).max() + 1)

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"bins": exactly(num_features)}

    def features(self, data: Graph) -> Tensor:
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
    def fit(cls, data: Graph) -> Self:
        """Count the nodes."""
        return cls(torch.tensor(int(data.num_nodes)))

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        return {"nodes": exactly(num_features)}

    def features(self, data: Graph) -> Tensor:
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
    def fit(cls, data: Graph) -> Self:
        """Look for the largest degree and count the nodes."""
        return cls(Degree.fit(data).bins, Identity.fit(data).nodes)

    @classmethod
    def suits(cls, data: Graph) -> bool:
        """Where there are no features."""
        return not has_features(data)

    @classmethod
    def forms(
        cls, num_features: int, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Form]:
        """What is fitted."""
        bins = num_features - num_nodes
        return {"bins": exactly(bins), "nodes": exactly(num_nodes)}

    def features(self, data: Graph) -> Tensor:
        """Two columns of each row are 1."""
        nodes, bins = _same_nodes(data, int(self.nodes)), int(self.bins)
        first = _degree_bins(data).clamp(max=bins - 1)
        columns = torch.stack([first, bins + torch.arange(nodes)], dim=1)
        return _ones_at(columns, bins + nodes)


def _degree_bins(data: Graph) -> Tensor:
    """Range of each node's degree; of a directed graph both directions count."""
    graph = canonicalise(data)
    ends = graph.edge_index.cpu()
    reverse = graph.reverse_edge.cpu() >= 0
    # An undirected edge is stored twice but is one neighbour.
    one_way = torch.cat([ends[1], ends[0][~reverse]])
    degree = torch.bincount(one_way, minlength=graph.num_nodes)
    fine = (2 * (degree.double().clamp(min=1) / 2).log2()).floor().long() + 2
    return torch.where(degree < 4, degree, fine)


def _same_nodes(data: Graph, expected: int) -> int:
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


PREPARATIONS: dict[str, type[Preparation]] = {
    kind.name: kind
    for kind in (Given, Rows, Standard, Degree, Identity, DegreeAndIdentity)
}


def suitable_preparations(data: Graph) -> list[str]:
    """Names of those that make sense for a graph; the first is the simplest."""
    return [name for name, kind in PREPARATIONS.items() if kind.suits(data)]


def fit_preparation(name: str, data: Graph) -> Preparation:
    """Fit the preparation called ``name`` to a graph."""
    return preparation_called(name).fit(data)


def preparation_called(name: str) -> type[Preparation]:
    """The kind of a stored preparation."""
    return lookup("preparation", name, PREPARATIONS)
