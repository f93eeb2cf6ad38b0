"""Graphs of networkx and frames of pandas, read as tables are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from gsebo.data.formats.node_table import LABELS, NodeColumns
from gsebo.data.formats.table_files import ArrowTable
from gsebo.data.formats.tables import graph_of
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph

# What pyarrow says of values that are of several kinds, or of none that it knows.
_NO_COLUMN = (pa.ArrowException, OverflowError, TypeError, ValueError)
_ID, _NODE, _VECTOR, _LARGEST = "id", "node", "x", 2**63


def from_pandas(
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
    """See :meth:`gsebo.Graph.from_pandas`."""
    return graph_of(
        _frame(edges, "the frame of edges"),
        None if nodes is None else _frame(nodes, "the frame of nodes", id or _ID),
        ends=(source, target),
        columns=NodeColumns(id, label, None, tuple(leave_out)),
        weight=weight,
        directed=directed,
    )


def _frame(frame: Any, what: str, id: str | None = None) -> ArrowTable:
    """A data frame as a table; a column of several kinds of values is one of texts.

    Where no column is called as that of the ids, an index is it that is more than the
    numbers of the rows.
    """
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns"):
        raise InvalidInput(
            f"{what} is {type(frame).__name__}: expected a pandas DataFrame."
        )
    index = frame.index
    named_so = index.name == id or (id == _ID and type(index).__name__ != "RangeIndex")
    if id is not None and id not in frame.columns and named_so and index.nlevels == 1:
        frame = frame.reset_index(names=id)
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"{what} has two columns {twice!r:.40}: expected one.")
    if not names or not len(frame):
        raise InvalidInput(f"{what} is empty: expected rows and columns.")
    named = any(isinstance(name, str) for name in frame.columns)
    if not named:
        names = [f"column {place + 1}" for place in range(len(names))]
    columns = {name: _series(frame.iloc[:, place]) for place, name in enumerate(names)}
    return ArrowTable(what, columns, named=named)


def _series(series: Any) -> Any:
    try:
        column = pa.array(series, from_pandas=True)
    except _NO_COLUMN:
        missing = series.isna()
        return _texts(
            None if gone else value for value, gone in zip(series, missing, strict=True)
        )
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _texts(values: Iterable[Any]) -> Any:
    return pa.array([None if one is None else str(one) for one in values], pa.string())


def from_networkx(
    graph: Any,
    *,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    weight: str | None = "weight",
) -> Graph:
    """See :meth:`gsebo.Graph.from_networkx`."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise InvalidInput(f"{type(graph).__name__} given: expected a networkx graph.")
    keys = list(graph.nodes)
    if not keys or not graph.number_of_edges():
        held = f"{len(keys)} nodes and {graph.number_of_edges()} edges"
        raise InvalidInput(f"the networkx graph has {held}: expected at least one.")
    attributes = _Attributes([data for _, data in graph.nodes(data=True)])
    label = attributes.find("label", label, LABELS)
    vector, numbers = _feature_names(attributes, label, features)
    columns: dict[str, Any] = {_NODE: _ids(keys)}
    if label is not None:
        columns["label"] = attributes.texts(label)
    masks = ("split",) if "split" in attributes.names else MASKS
    for name in (name for name in masks if name in attributes.names):
        columns[name] = attributes.masks(name)
    for name in numbers:
        # Under another name, for it may be that of a column with a meaning.
        columns[f"feature {name}"] = attributes.numbers(name)
    made = graph_of(
        _edges(graph, keys, columns[_NODE], weight),
        ArrowTable("the nodes of the networkx graph", columns, named=True),
        columns=NodeColumns(_NODE, "label" if label is not None else None),
        directed=graph.is_directed(),
    )
    if vector is not None:
        made.x = torch.from_numpy(attributes.vectors(vector))
    used = [vector] if vector is not None else list(numbers)
    made.meta["feature_columns"] = used
    made.meta["columns_left_out"] = sorted(attributes.names - {label, *masks, *used})
    if graph.name:
        made.meta["name"] = str(graph.name)
    return made


def _ids(keys: list[Any]) -> Any:
    """What nodes are called: numbers if all keys are, or else what keys look like."""
    if all(_is_whole(key) and -_LARGEST <= key < _LARGEST for key in keys):
        return pa.array([int(key) for key in keys], pa.int64())
    seen: dict[str, Any] = {}
    for key in keys:
        if (text := str(key)) in seen:
            raise InvalidInput(
                f"the nodes {seen[text]!r:.40} and {key!r:.40} of the networkx graph "
                "look alike as texts: expected another text for each."
            )
        seen[text] = key
    return _texts(keys)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | np.bool_)


def _edges(graph: Any, keys: list[Any], ids: Any, weight: str | None) -> ArrowTable:
    place = {key: number for number, key in enumerate(keys)}
    ends = [(place[one], place[other]) for one, other in graph.edges()]
    columns = {
        name: ids.take(pa.array([pair[side] for pair in ends]))
        for side, name in enumerate(("source", "target"))
    }
    what = "the edges of the networkx graph"
    if weight is not None:
        given = [data.get(weight) for *_, data in graph.edges(data=True)]
        if any(value is not None for value in given):
            # Networkx, too, counts an edge without a weight as one.
            given = [1.0 if value is None else value for value in given]
            columns["weight"] = _number_column(given, f"{weight} of {what}")
    return ArrowTable(what, columns, named=True)


def _number_column(values: list[Any], where: str) -> Any:
    for row, value in enumerate(values, 1):
        if not _is_number(value):
            raise InvalidInput(
                f"{where} is {value!r:.40} in row {row}: expected numbers."
            )
    try:
        return pa.array([float(value) for value in values], pa.float64())
    except OverflowError as error:
        raise InvalidInput(
            f"{where} holds a number beyond all others: expected finite ones."
        ) from error


def _feature_names(
    attributes: _Attributes, label: str | None, given: str | Sequence[str] | None
) -> tuple[str | None, tuple[str, ...]]:
    """The attribute that is a vector, or those that are numbers."""
    if isinstance(given, str):
        attributes.find("features", given, ())
        if attributes.all_are_numbers(given):
            return None, (given,)
        return given, ()
    if given is not None:
        for name in given:
            attributes.find("features", name, ())
        return None, tuple(given)
    if _VECTOR in attributes.names and not attributes.all_are_numbers(_VECTOR):
        return _VECTOR, ()
    special = {label, "split", *MASKS}
    found = sorted(attributes.names - special)
    return None, tuple(name for name in found if attributes.all_are_numbers(name))


class _Attributes:
    """What the nodes of a networkx graph have, by the attributes' names."""

    def __init__(self, rows: list[Mapping[Any, Any]]) -> None:
        self._rows = rows
        self.names = {name for row in rows for name in row if isinstance(name, str)}

    def find(self, role: str, given: str | None, usual: Sequence[str]) -> str | None:
        if given is None:
            return next((name for name in usual if name in self.names), None)
        if given not in self.names:
            raise InvalidInput(
                f"{role}={given!r:.40} given, which no node of the networkx graph has: "
                f"expected one of {', '.join(sorted(self.names)):.200}."
            )
        return given

    def all_are_numbers(self, name: str) -> bool:
        return all(_is_number(row.get(name)) for row in self._rows)

    def numbers(self, name: str) -> Any:
        values = [row.get(name) for row in self._rows]
        return _number_column(values, f"{name} of the nodes of the networkx graph")

    def texts(self, name: str) -> Any:
        values = (row.get(name) for row in self._rows)
        # Not a number: what pandas writes where nothing is known.
        return _texts(
            None if isinstance(value, float) and math.isnan(value) else value
            for value in values
        )

    def masks(self, name: str) -> Any:
        values = [row.get(name) for row in self._rows]
        if name == "split":
            return _texts(values)
        for row, value in enumerate(values, 1):
            if value is not None and not (_is_number(value) and value in (0, 1)):
                raise InvalidInput(
                    f"{name} of node {row} of the networkx graph is {value!r:.40}: "
                    "expected true or false."
                )
        return pa.array([bool(value) for value in values])

    def vectors(self, name: str) -> Any:
        where = f"{name} of the nodes of the networkx graph"
        rows = [row.get(name) for row in self._rows]
        try:
            with np.errstate(over="ignore"):
                x = np.stack([np.asarray(row, np.float32) for row in rows])
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"{where} is no vector of the same length for each: expected numbers."
            ) from error
        if x.ndim != 2 or not x.shape[1] or not np.isfinite(x).all():
            raise InvalidInput(
                f"{where} has shape {list(x.shape)}, or is not finite: expected a "
                "vector of finite numbers for each node."
            )
        return x
