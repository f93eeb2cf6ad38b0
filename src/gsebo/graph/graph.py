"""A graph as everything here reads it: edges, and what is known of nodes and edges."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.names import Registry, imported
from gsebo.sparse.types import EntryTypes

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

_OPTIONAL = (
    "x",
    "edge_index",
    "y",
    "train_mask",
    "val_mask",
    "test_mask",
    "unseen_mask",
    "node_id",
    "node_type",
    "edge_weight",
    "edge_attr",
    "edge_type",
    "meta",
)
TYPE_NAMES = (
    "node_types",
    "edge_types",
    "columns",
    "edge_columns",
    "without_features",
    "target",
)
"""What ``meta`` says of types of nodes and relations."""


@final
class Graph:
    """Nodes and edges with features, labels and masks, by the names that PyG has.

    What a graph does not have is ``None``. Anything else that is set on a graph is kept
    and not looked at.

    Args:
        x: Features, ``[nodes, channels]``, dense or sparse (CSR).
        edge_index: Source and target of each edge, int64 ``[2, edges]``.
        y: Class of each node, int64 ``[nodes]``; -1 where it is not known.
        num_nodes: Their number, where neither features nor edges tell it.
        **more: ``train_mask``, ``val_mask``, ``test_mask``: which nodes serve what;
            ``unseen_mask``: which come after a fit; ``node_id``: the user's own ids,
            an integer tensor or a numpy array of texts; ``edge_weight``: what each edge
            weighs, not negative, ``[edges]``; ``edge_attr``: what else is known of it,
            ``[edges]`` or ``[edges, columns]``; ``node_type``, ``edge_type``: the
            number of the type of each node and of the relation of each edge, where
            there are several; ``meta``: anything that JSON can hold, with the names of
            the classes under ``"classes"``, those of the types under ``"node_types"``
            and ``"edge_types"`` (type of the source, name, type of the target), and
            under ``"columns"`` first and end of those columns of ``x`` that belong to
            each type of nodes, where types have different features, and under
            ``"edge_columns"`` of those of ``edge_attr`` that belong to each relation;
            under ``"without_features"`` the types that have a column of ones because
            nothing else is known of them; under ``"target"`` the type whose nodes have
            classes.

    >>> graph = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
    >>> graph.num_nodes, graph.num_edges, "y" in graph, graph.y
    (3, 2, False, None)
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    unseen_mask: Tensor
    node_id: Tensor | NDArray[np.str_]
    node_type: Tensor
    edge_weight: Tensor
    edge_attr: Tensor
    edge_type: Tensor
    edge_strength: Tensor
    meta: Any

    def __init__(
        self,
        x: Tensor | None = None,
        edge_index: Tensor | None = None,
        y: Tensor | None = None,
        *,
        num_nodes: int | None = None,
        **more: Any,
    ) -> None:
        named = {"x": x, "edge_index": edge_index, "y": y, "num_nodes": num_nodes}
        given = {**named, **more}.items()
        self.__dict__ |= {name: value for name, value in given if value is not None}

    @classmethod
    def from_pyg(cls, data: Data | HeteroData) -> Graph:
        """What a PyG ``Data`` or ``HeteroData`` holds; tensors of ``Data`` are shared.

        Nodes of a ``HeteroData`` are numbered type by type, edges relation by relation.
        """
        if _kind_of(data) == _HETERO:
            made: Graph = KINDS_OF_GRAPHS[_HETERO](data)
            return made
        graph = cls()
        graph.__dict__ |= data.to_dict()
        return graph

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        label: str | None = None,
        features: str | Sequence[str] | None = None,
        weight: str | None = "weight",
    ) -> Graph:
        """The nodes and edges of a ``networkx`` graph, directed or not.

        Nodes are called by their keys: whole numbers if all are, or else texts. The
        attributes ``train_mask``, ``val_mask`` and ``test_mask``, or ``split``, are
        the masks.

        Args:
            graph: Any of networkx's graphs; of a multigraph, parallel edges are one.
            label: Attribute of a node's class; ``label``, ``y`` or ``class`` by
                default. Nodes without it are of no known class.
            features: Attribute with a vector of numbers, or the names of attributes
                that are numbers; by default ``x``, or all others that are numbers.
            weight: Attribute of an edge's weight, if any edge has it; 1 for others.
        """
        make: Any = KINDS_OF_GRAPHS["networkx:Graph"]
        made: Graph = make(graph, label=label, features=features, weight=weight)
        return made

    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any = None,
        *,
        source: str | None = None,
        target: str | None = None,
        id: str | None = None,
        label: str | None = None,
        weight: str | None = None,
        leave_out: Sequence[str] = (),
        directed: bool = False,
    ) -> Graph:
        """An edge list and a node table that are ``pandas`` data frames.

        They are understood as files are: see :func:`gsebo.load_data`.

        Args:
            edges: One row for each edge.
            nodes: One row for each node; without, nodes are those that edges name.
            source: Column of the edges; ``source`` by default.
            target: Column of the edges; ``target`` by default.
            id: Column of the nodes with the names by which edges call them; ``id`` by
                default, or else the index, if that is more than the numbers of rows.
            label: Column of the nodes with their classes; missing where not known.
            weight: Column of the edges; ``weight`` by default, if there is one.
            leave_out: Columns of the nodes that are no features.
            directed: Whether an edge goes one way only.
        """
        make: Any = KINDS_OF_GRAPHS["pandas:DataFrame"]
        columns = {"source": source, "target": target, "id": id, "label": label}
        more = {"weight": weight, "leave_out": leave_out, "directed": directed}
        made: Graph = make(edges, nodes, **columns, **more)
        return made

    def to_pyg(self) -> Any:
        """The same as a PyG ``Data``, or ``HeteroData`` where there are several types.

        Tensors of a ``Data`` are shared.
        """
        if self.types is not None:
            make: Any = imported("gsebo.graph.hetero:to_hetero")
            return make(self)
        from torch_geometric.data import Data

        return Data(**self.to_dict())

    @property
    def types(self) -> EntryTypes | None:
        """Types of nodes and edges; ``None`` where there is one of each.

        Names that ``meta`` does not say are numbers. Where only nodes have types, the
        types of both ends are the relation of an edge.
        """
        if "node_type" not in self and "edge_type" not in self:
            return None
        found = self.one_or_more_types()
        several = len(found.node_types) > 1 or found.num_relations > 1
        return found if several else None

    def one_or_more_types(self) -> EntryTypes:
        """The same of any graph, also where there is one type and one relation."""
        meta = self.meta if isinstance(self.meta, dict) else {}
        edges = torch.empty(2, 0, dtype=torch.int64)
        if "edge_index" in self:
            edges = self.edge_index.cpu().to(torch.int64)
        node_type = torch.zeros(self.num_nodes, dtype=torch.int64)
        if "node_type" in self:
            node_type = self.node_type.cpu().to(torch.int64)
        known = meta.get("node_types")
        if not known:
            has_types = "node_type" in self or "edge_type" in self
            numbers = range(int(node_type.max()) + 1 if node_type.numel() else 1)
            known = numbers if has_types else ["node"]
        names = tuple(str(each) for each in known)
        relations = meta.get("edge_types")
        if "edge_type" in self:
            edge_type = self.edge_type.cpu().to(torch.int64)
            if not relations:
                relations = _named_relations(edges, edge_type, node_type, names)
        else:
            ends = node_type[edges]
            pairs, edge_type = torch.unique(
                ends[0] * len(names) + ends[1], return_inverse=True
            )
            ways = ((each // len(names), each % len(names)) for each in pairs.tolist())
            relations = [(names[one], "to", names[other]) for one, other in ways]
        triples = tuple((str(a), str(b), str(c)) for a, b, c in relations)
        columns = meta.get("columns")
        blocks = columns and tuple((int(first), int(end)) for first, end in columns)
        classified = self._classified(node_type, names)
        return EntryTypes(
            node_type, edge_type, names, triples, blocks or None, classified
        )

    def _classified(self, node_type: Tensor, names: Sequence[str]) -> int | None:
        """The type that ``meta`` says has classes, or else the only one that has."""
        target = self.meta.get("target") if isinstance(self.meta, dict) else None
        if target is not None:
            return names.index(target) if target in names else None
        if self.y is None or len(self.y) != len(node_type):
            return None
        found = torch.unique(node_type[(self.y >= 0).cpu()]).tolist()
        return found[0] if len(found) == 1 else None

    def without_types(self) -> Graph:
        """The same nodes and edges, all of one type and one relation."""
        plain = copy.copy(self)
        for name in ("node_type", "edge_type"):
            plain.__dict__.pop(name, None)
        if isinstance(self.meta, dict):
            plain.meta = {k: v for k, v in self.meta.items() if k not in TYPE_NAMES}
        return plain

    @property
    def num_nodes(self) -> int:
        """As stated, or as the features say, or as the edges need."""
        if "num_nodes" in self:
            stated: int = self["num_nodes"]
            return stated
        if "x" in self:
            return int(self.x.shape[0])
        edges = self.edge_index
        return int(edges.max()) + 1 if edges is not None and edges.numel() else 0

    @num_nodes.setter
    def num_nodes(self, count: int) -> None:
        self.__dict__["num_nodes"] = count

    @property
    def num_edges(self) -> int:
        """Number of columns of ``edge_index``."""
        return int(self.edge_index.shape[1]) if "edge_index" in self else 0

    @property
    def num_features(self) -> int:
        """Number of columns of ``x``."""
        return int(self.x.shape[1]) if "x" in self else 0

    @property
    def ids(self) -> NDArray[Any]:
        """What the user calls each node: whole numbers or texts, ``[nodes]``.

        Without ids of their own, nodes are called by their numbers.
        """
        if "node_id" not in self:
            return np.arange(self.num_nodes)
        given = self.node_id
        return given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)

    @property
    def class_names(self) -> list[str] | None:
        """What the user calls each class; ``None`` where classes are numbers."""
        meta = self.meta if isinstance(self.meta, dict) else {}
        named = meta.get("classes")
        if not isinstance(named, list | tuple):
            return None
        return [str(name) for name in named]

    def keys(self) -> list[str]:
        """Names of all that is there."""
        return list(self.__dict__)

    def to_dict(self) -> dict[str, Any]:
        """All that is there, by name; tensors are shared."""
        return dict(self.__dict__)

    def get(self, name: str, default: Any = None) -> Any:
        """What is called so, or something else."""
        return self.__dict__.get(name, default)

    def clone(self) -> Graph:
        """A copy whose tensors are copies too."""
        return copy.deepcopy(self)

    def to(self, device: torch.device | str) -> Graph:
        """A copy whose tensors are on a device."""
        moved = copy.copy(self)
        for name, value in self:
            if isinstance(value, Tensor):
                moved[name] = value.to(device)
        return moved

    def __getattr__(self, name: str) -> Any:
        if name in _OPTIONAL:
            return None
        raise AttributeError(f"this graph has no {name!r}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __delitem__(self, name: str) -> None:
        del self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return self.__dict__.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.to_dict().items())

    def __repr__(self) -> str:
        shown = [
            f"{name}={list(value.shape)}"
            for name, value in self
            if isinstance(value, Tensor)
        ]
        return f"Graph({', '.join(shown)})"


def _named_relations(
    edges: Tensor, edge_type: Tensor, node_type: Tensor, names: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Relations called by their number, each with the types at its first edge."""
    count = int(edge_type.max()) + 1 if edge_type.numel() else 1
    found = [(names[0], str(number), names[0]) for number in range(count)]
    numbers, first = np.unique(edge_type.numpy(), return_index=True)
    ends = node_type[edges[:, torch.from_numpy(first)]].T.tolist()
    for number, (one, other) in zip(numbers.tolist(), ends, strict=True):
        found[number] = (names[one], str(number), names[other])
    return found


class GraphLike(Protocol):
    """What a user may call a graph: a :class:`Graph`, a PyG ``Data`` and others.

    Those are a PyG ``HeteroData``, the graphs of networkx, and a pandas frame of edges.
    """

    x: Any
    edge_index: Any
    y: Any


_PYG, _HETERO = "torch_geometric:Data", "torch_geometric:HeteroData"

KINDS_OF_GRAPHS: Registry[Callable[..., Graph]] = Registry(
    {
        _PYG: Graph.from_pyg,
        _HETERO: "gsebo.graph.hetero:from_hetero",
        # Tables are read in a room that builds on this one.
        "networkx:Graph": "gsebo.data.formats.objects:from_networkx",
        "pandas:DataFrame": "gsebo.data.formats.objects:from_pandas",
    }
)
"""What makes a graph of an object, by ``"PACKAGE:NAME"`` of the object's class."""


def as_graph(given: GraphLike) -> Graph:
    """Take what a user calls a graph; no other package is imported to recognise it.

    Args:
        given: A :class:`Graph`, a PyG ``Data`` or ``HeteroData``, a networkx graph, or
            a pandas frame of edges.

    Raises:
        InvalidInput: It is neither a :class:`Graph` nor of a kind that is known.
    """
    if isinstance(given, Graph):
        return given
    kind = _kind_of(given)
    if kind is None:
        raise InvalidInput(
            "expected a gsebo.Graph, a torch_geometric.data.Data or HeteroData, a "
            "networkx graph or a pandas DataFrame of edges, got "
            f"{type(given).__name__}."
        )
    return KINDS_OF_GRAPHS[kind](given)


def _kind_of(given: object) -> str | None:
    for kind in type(given).__mro__:
        package = kind.__module__.partition(".")[0]
        if (name := f"{package}:{kind.__name__}") in KINDS_OF_GRAPHS:
            return name
    return None


def given_back(graph: Graph, given: GraphLike) -> Any:
    """A graph of our own, as an object of PyG if that is what a user has given."""
    kind = _kind_of(given)
    if kind == _HETERO:
        # As well one that has a single type and a single relation.
        return imported("gsebo.graph.hetero:to_hetero")(graph)
    return graph.to_pyg() if kind == _PYG else graph
