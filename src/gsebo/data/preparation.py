"""What is done to node features before a network reads them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self, final

import scipy.sparse
import torch
from torch import Tensor

from gsebo.data.relations import metapath_embeddings
from gsebo.errors import InvalidInput
from gsebo.files import Form
from gsebo.graph.features import (
    csr_tensor,
    features_from_csr,
    features_to_csr,
    normalise_rows,
)
from gsebo.graph.graph import Graph
from gsebo.graph.topology import canonicalise
from gsebo.names import lookup

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
    keeps_columns: ClassVar[bool] = True

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

    @classmethod
    @abstractmethod
    def forms(cls, columns: int, nodes: int, dtype: torch.dtype) -> dict[str, Form]:
        """What :meth:`tensors` has to be where it makes so many columns, by name."""

    @final
    def apply(self, data: Graph) -> Graph:
        """Return a shallow copy of a graph with the prepared features."""
        prepared = copy.copy(data)
        prepared.x = self.features(data)
        if isinstance(data.meta, dict) and not self.keeps_columns:
            # What belonged to one type of nodes is no longer there.
            gone = ("columns", "without_features")
            prepared.meta = {k: v for k, v in data.meta.items() if k not in gone}
        return prepared

    @final
    def tensors(self) -> dict[str, Tensor]:
        """What was fitted, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    @final
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Self:
        """Rebuild it from :meth:`tensors`, which are as :meth:`forms` says."""
        return cls(**tensors)


@dataclass(frozen=True, eq=False)
class _OfRows(Preparation):
    """Needs to know nothing of the graph of the fit but its number of features."""

    columns: Tensor

    @classmethod
    @final
    def fit(cls, data: Graph) -> Self:
        return cls(torch.tensor(given_features(data).shape[1]))

    @classmethod
    @final
    def forms(cls, columns: int, nodes: int, dtype: torch.dtype) -> dict[str, Form]:
        return {"columns": _exactly(columns)}


@final
@dataclass(frozen=True, eq=False)
class Given(_OfRows):
    """The features as they are."""

    name = "given"

    @classmethod
    def suits(cls, data: Graph) -> bool:
        return _has_features(data)

    def features(self, data: Graph) -> Tensor:
        return given_features(data, int(self.columns))


@final
@dataclass(frozen=True, eq=False)
class Rows(_OfRows):
    """Each row divided by its sum, as is usual for counts of words."""

    name = "rows"

    @classmethod
    def suits(cls, data: Graph) -> bool:
        if not _has_features(data) or bool((_stored(data.x) < 0).any()):
            return False
        x = given_features(data)
        return not torch.allclose(_stored(normalise_rows(x)), _stored(x))

    def features(self, data: Graph) -> Tensor:
        return normalise_rows(given_features(data, int(self.columns)))


@final
@dataclass(frozen=True, eq=False)
class Largest(_OfRows):
    """Each row divided by its largest number: of zeros and ones, after ``"rows"`` too.

    For methods whose authors leave words that are there or not as zeros and ones.
    """

    name = "largest"

    @classmethod
    def suits(cls, data: Graph) -> bool:
        # What differs from "rows" by a factor for each node is not tried beside it.
        return False

    def features(self, data: Graph) -> Tensor:
        given = given_features(data, int(self.columns))
        return normalise_rows(given, largest=True)


@final
@dataclass(frozen=True, eq=False)
class Metapaths(Preparation):
    """The columns of ``"largest"``, and embeddings along metapaths of length one.

    A node that a metapath does not reach has zeros, as its embedding does.
    """

    name = "metapaths"
    keeps_columns = False
    columns: Tensor

    @classmethod
    def fit(cls, data: Graph) -> Self:
        return cls(torch.tensor(cls._joined(data).shape[1]))

    @classmethod
    def suits(cls, data: Graph) -> bool:
        return _has_features(data) and bool(metapath_embeddings(data))

    @classmethod
    def forms(cls, columns: int, nodes: int, dtype: torch.dtype) -> dict[str, Form]:
        return {"columns": _exactly(columns)}

    @staticmethod
    def _joined(data: Graph) -> Tensor:
        x = normalise_rows(given_features(data), largest=True)
        embeddings = metapath_embeddings(data).values()
        z = [torch.nn.functional.normalize(each.to(x.dtype)) for each in embeddings]
        if x.layout != torch.sparse_csr:
            return torch.cat([x, *(each.to(x.device) for each in z)], dim=1)
        parts = [features_to_csr(x), *(each.numpy() for each in z)]
        return features_from_csr(scipy.sparse.hstack(parts, "csr"))

    def features(self, data: Graph) -> Tensor:
        joined = self._joined(data)
        if joined.shape[1] != int(self.columns):
            raise InvalidInput(
                f"the graph has {joined.shape[1]} features per node with its "
                f"embeddings along metapaths; expected {int(self.columns)}, as in the "
                "graph of the fit."
            )
        return joined


@final
@dataclass(frozen=True, eq=False)
class Standard(Preparation):
    """Each column to variance 1 and, unless most features are zero, to mean 0.

    Of a column that belongs to one type of nodes, those of the type alone count.
    """

    name = "standard"
    mean: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, data: Graph) -> Self:
        x = given_features(data)
        own = _sizes_of_columns(data)
        rows: Tensor | int = x.shape[0] if own is None else own.to(x.device)
        most = x.numel() if own is None else int(own.sum())
        stored = int(torch.count_nonzero(_stored(x)))
        mean = _column_sums(x) / rows
        # Numbers of float64 keep a column that is nearly constant from breaking it.
        variance = _column_sums(x, power=2) / rows - mean.square()
        spread = variance.clamp(min=0).sqrt()
        constant = spread <= 1e-6 * mean.abs()
        scale = torch.where(constant, 1.0, spread).to(x.dtype)
        if stored < _SPARSE_BELOW * most:
            mean = torch.zeros_like(mean)
        return cls(mean.to(x.dtype), scale)

    @classmethod
    def suits(cls, data: Graph) -> bool:
        if not _has_features(data):
            return False
        fitted = cls.fit(data)
        near = (fitted.scale - 1).abs() + fitted.mean.abs() < _NEARLY
        return not bool(near.all())

    @classmethod
    def forms(cls, columns: int, nodes: int, dtype: torch.dtype) -> dict[str, Form]:
        each = Form(dtype, (columns,))
        return {"mean": each, "scale": replace(each, low=0)}

    def features(self, data: Graph) -> Tensor:
        x = given_features(data, len(self.scale))
        scale, mean = self.scale.to(x.device, x.dtype), self.mean.to(x.device, x.dtype)
        if x.layout != torch.sparse_csr or bool(mean.any()):
            x = x if x.layout != torch.sparse_csr else x.to_dense()
            found = (x - mean) / scale
            own = _own_columns(data)
            return found if own is None else found.where(own.to(x.device), 0)
        starts, columns = x.crow_indices(), x.col_indices()
        values = x.values() / scale[columns]
        return csr_tensor(starts, columns, values, (x.shape[0], x.shape[1]))


@dataclass(frozen=True, eq=False)
class _OneHot(Preparation):
    """Ones in the columns of what is known of a node without features.

    ``bins`` and ``nodes``, where a subclass has them, are numbers of columns: for the
    ranges of degrees, of which the last takes all larger ones too, and for the nodes.
    """

    keeps_columns = False

    @classmethod
    @final
    def fit(cls, data: Graph) -> Self:
        count = {
            "bins": lambda: _degree_bins(data).max() + 1,
            "nodes": lambda: torch.tensor(int(data.num_nodes)),
        }
        return cls(**{field.name: count[field.name]() for field in fields(cls)})

    @classmethod
    @final
    def suits(cls, data: Graph) -> bool:
        return not _has_features(data)

    @classmethod
    @final
    def forms(cls, columns: int, nodes: int, dtype: torch.dtype) -> dict[str, Form]:
        names = [field.name for field in fields(cls)]
        if len(names) == 1:
            return {names[0]: _exactly(columns)}
        return {"bins": _exactly(columns - nodes), "nodes": _exactly(nodes)}

    @final
    def features(self, data: Graph) -> Tensor:
        columns, width = [], 0
        for name, fitted in self.tensors().items():
            count = int(fitted)
            place = torch.arange(int(data.num_nodes))
            if name == "bins":
                place = _degree_bins(data).clamp(max=count - 1)
            elif len(place) != count:
                raise InvalidInput(
                    f"the graph has {len(place)} nodes; expected the {count} of the "
                    "fit, because without features nodes were told apart by their "
                    "numbers."
                )
            columns.append(width + place)
            width += count
        at = torch.stack(columns, dim=1)
        starts = torch.arange(0, at.numel() + 1, at.shape[1])
        shape = (at.shape[0], width)
        return csr_tensor(starts, at.flatten(), torch.ones(at.numel()), shape)


@final
@dataclass(frozen=True, eq=False)
class Degree(_OneHot):
    """The number of neighbors, one column for each range of numbers.

    The ranges grow with the degree: 0, 1, 2, 3, then two ranges for each doubling.
    """

    name = "degree"
    bins: Tensor


@final
@dataclass(frozen=True, eq=False)
class Identity(_OneHot):
    """A column for every node: each learns on its own, and none can be new."""

    name = "identity"
    nodes: Tensor


@final
@dataclass(frozen=True, eq=False)
class DegreeAndIdentity(_OneHot):
    """The columns of both."""

    name = "degree+identity"
    bins: Tensor
    nodes: Tensor


def given_features(data: Graph, expected: int | None = None) -> Tensor:
    """The features in single or double precision, as many as in the graph of a fit."""
    if not _has_features(data):
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


def _has_features(data: Graph) -> bool:
    return "x" in data and data.x is not None


def _exactly(number: int) -> Form:
    """A tensor that holds one known number."""
    return Form(torch.int64, (), low=number, high=number + 1)


def _owner_of_column(data: Graph) -> tuple[Tensor, Tensor] | None:
    """Type of each node, and type of the nodes that each column belongs to, if any."""
    types = data.types
    if types is None or types.columns is None:
        return None
    owner = torch.empty(data.num_features, dtype=torch.int64)
    for number, (first, end) in enumerate(types.columns):
        owner[first:end] = number
    return types.node_type, owner


def _sizes_of_columns(data: Graph) -> Tensor | None:
    """How many nodes are of the type of each column; ``None`` where all have all."""
    known = _owner_of_column(data)
    if known is None:
        return None
    node_type, owner = known
    sizes = torch.bincount(node_type, minlength=int(owner.max()) + 1)
    return sizes.clamp(min=1)[owner]


def _own_columns(data: Graph) -> Tensor | None:
    """Which numbers belong to a node by its type; ``None`` where all do."""
    known = _owner_of_column(data)
    return None if known is None else known[0].unsqueeze(-1) == known[1]


def _stored(x: Tensor) -> Tensor:
    return x.values() if x.layout == torch.sparse_csr else x


def _column_sums(x: Tensor, power: int = 1) -> Tensor:
    """Sum of each column's powers, in double precision."""
    if x.layout != torch.sparse_csr:
        # The cast is a copy of the matrix, so that it is done once for all columns.
        return x.double().pow(power).sum(0)
    sums = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    return sums.index_add(0, x.col_indices(), x.values().double().pow(power))


def _degree_bins(data: Graph) -> Tensor:
    """Range of each node's degree; of a directed graph both directions count."""
    graph = canonicalise(data)
    ends = graph.edge_index.cpu()
    reverse = graph.reverse_edge.cpu() >= 0
    # An undirected edge is stored twice but is one neighbor.
    one_way = torch.cat([ends[1], ends[0][~reverse]])
    degree = torch.bincount(one_way, minlength=graph.num_nodes)
    fine = (2 * (degree.double().clamp(min=1) / 2).log2()).floor().long() + 2
    return torch.where(degree < 4, degree, fine)


PREPARATIONS: dict[str, type[Preparation]] = {
    kind.name: kind
    for kind in (
        Given,
        Rows,
        Largest,
        Metapaths,
        Standard,
        Degree,
        Identity,
        DegreeAndIdentity,
    )
}


WITHOUT_FEATURES = tuple(
    kind.name for kind in PREPARATIONS.values() if issubclass(kind, _OneHot)
)
"""Names of those that read the edges alone."""


def suitable_preparations(data: Graph) -> list[str]:
    """Names of those that make sense for a graph; the first is the simplest."""
    return [name for name, kind in PREPARATIONS.items() if kind.suits(data)]


def fit_preparation(name: str, data: Graph) -> Preparation:
    """Fit the preparation called ``name`` to a graph."""
    return preparation_called(name).fit(data)


def preparation_called(name: str) -> type[Preparation]:
    """The kind of a stored preparation."""
    return lookup("preparation", name, PREPARATIONS)
