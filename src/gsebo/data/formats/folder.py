"""Graphs in folders of memory-mapped arrays: for graphs that do not fit in memory.

``docs/graphs_on_disk.md`` describes the format.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.data.formats.folder_check import check_arrays
from gsebo.data.formats.folder_writer import FolderWriter
from gsebo.data.formats.manifest import MANIFEST, Manifest, read_manifest
from gsebo.data.formats.npy_stream import map_array, sha256_of_array
from gsebo.data.validate import MASKS, require_graph, sized, validate
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.arrays import Array, CSRArrays, GraphArrays, canonicalise
from gsebo.graph.features import LARGEST_DENSE, csr_tensor, whole_numbers
from gsebo.graph.graph import Graph, GraphLike, as_graph
from gsebo.memory import require_memory


def is_graph_folder(path: str | PathLike[str]) -> bool:
    """Whether there is a folder with something that is called as a manifest is."""
    try:
        return os.path.lexists(_folder_at(path) / MANIFEST)
    except ValueError:
        # No path at all.
        return False


@final
@dataclass(frozen=True)
class GraphFolder:
    """A graph on disk.

    Attributes:
        path: The folder.
        manifest: What the folder says of itself.
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | PathLike[str], *, anew: bool = False) -> GraphFolder:
        """Open a folder whose manifest and arrays are undamaged and those of a graph.

        The arrays are read once, in bounded memory: checksums, ranges, order. That they
        passed is remembered until somebody changes the files, in the user's cache too,
        so that the next time takes milliseconds.

        Args:
            path: The folder.
            anew: Read the arrays whatever is remembered.

        Raises:
            InvalidInput: The folder is no graph, or damaged, or not all there; the
                message names the first bad thing.
        """
        folder = _folder_at(path)
        if not os.path.isdir(folder):
            raise InvalidInput(
                f"there is no folder {escaped(str(path))}: expected a graph folder."
            )
        if not is_graph_folder(folder):
            raise InvalidInput(
                f"{escaped(str(path))} has no {MANIFEST}: expected a graph folder, as "
                "gsebo data convert writes it."
            )
        manifest = read_manifest(folder)
        check_arrays(folder, manifest, anew=anew)
        return cls(folder, manifest)

    def arrays(self) -> GraphArrays:
        """The graph, mapped from the files and read-only."""
        mapped = self._mapped()
        x: Array | CSRArrays
        if self.manifest.features == "dense":
            x = mapped["x"]
        else:
            x = CSRArrays(
                mapped["x_indptr"],
                mapped["x_columns"],
                mapped["x_values"],
                self.manifest.num_features,
            )
        return GraphArrays(
            mapped["indptr"],
            mapped["source"],
            x,
            y=mapped.get("y"),
            train=mapped.get("train_mask"),
            val=mapped.get("val_mask"),
            test=mapped.get("test_mask"),
            node_id=mapped.get("node_id"),
        )

    def labels(self) -> Graph:
        """Labels and masks in memory, without edges and features."""
        kept = {
            name: torch.from_numpy(np.array(array))
            for name, array in self._mapped().items()
            if name in ("y", *MASKS)
        }
        return Graph(num_nodes=self.manifest.num_nodes, **kept)

    def verify(self) -> None:
        """Read everything again, in bounded memory, and check it.

        Raises:
            InvalidInput: A checksum differs or the arrays are no graph in canonical
                order; the message names the first bad thing.
        """
        check_arrays(self.path, self.manifest, anew=True)

    def to_data(self) -> Graph:
        """The graph in memory, for graphs that fit there.

        Features are a dense tensor unless that would hold too many entries.
        """
        manifest, mapped = self.manifest, self._mapped()
        stored = sum(array.nbytes for array in mapped.values())
        require_memory(
            # Both ends of an edge become 64 bits wide while the arrays are there.
            stored + 24 * manifest.num_edges,
            what=f"the graph in {escaped(str(self.path))}, read whole,",
            instead="a method with a batch size, which reads it in parts",
        )
        held = {name: np.array(array) for name, array in mapped.items()}
        target = np.repeat(np.arange(manifest.num_nodes), np.diff(held["indptr"]))
        edges = np.stack([held["source"].astype(np.int64), target])
        fields: dict[str, Any] = {
            "x": _features(held, manifest.num_features),
            "edge_index": torch.from_numpy(edges),
        }
        for name in ("y", "node_id"):
            if name in held:
                fields[name] = torch.from_numpy(held[name].astype(np.int64))
        fields |= {name: torch.from_numpy(held[name]) for name in MASKS if name in held}
        meta = {**manifest.facts, "name": self.path.name}
        if manifest.classes is not None:
            meta["classes"] = list(manifest.classes)
        return Graph(**fields, meta=meta)

    def _mapped(self) -> dict[str, Array]:
        # Somebody may have changed the files since they were opened.
        check_arrays(self.path, self.manifest)
        return {
            name: map_array(self.path / f"{name}.npy", entry.dtype, entry.shape)
            for name, entry in self.manifest.arrays.items()
        }


def _folder_at(path: str | PathLike[str]) -> Path:
    return Path(os.path.expanduser(path))


def _features(held: dict[str, Array], columns: int) -> Tensor:
    if "x" in held:
        return torch.from_numpy(held["x"])
    parts = held["x_values"], held["x_columns"], held["x_indptr"]
    shape = (len(parts[2]) - 1, columns)
    if shape[0] * shape[1] <= LARGEST_DENSE:
        return torch.from_numpy(csr_matrix(parts, shape=shape).toarray())
    values, indices, starts = (torch.from_numpy(part) for part in parts)
    return csr_tensor(starts, indices.long(), values, shape)


_ROWS_AT_ONCE = 2**16
_FLOATS = (torch.float16, torch.float32, torch.float64)
LOG_DEGREE = "log(1 + edges into the node)"
"""What is said of the one feature of a graph that came without features."""


def log_degree(degree: NDArray[np.integer]) -> NDArray[np.float32]:
    """That feature, ``[nodes, 1]``.

    >>> log_degree(np.array([0, 1])).tolist()
    [[0.0], [0.6931471824645996]]
    """
    # The logarithms of numpy and torch round differently with AVX-512 and on several
    # threads; there are few different degrees.
    few, place = np.unique(degree, return_inverse=True)
    logarithm = [math.log1p(one) for one in few.tolist()]
    return np.array(logarithm, np.float32)[place, None]


def write_folder(
    graph: GraphLike | GraphArrays,
    path: str | PathLike[str],
    *,
    facts: dict[str, Any] | None = None,
) -> GraphFolder:
    """Write a graph as a folder; it appears whole or not at all.

    A ``Graph`` without features gets one: the logarithm of one plus the edges into the
    node.

    Args:
        graph: The graph; a ``Graph`` is checked, arrays are taken as they are.
        path: A folder that does not exist.
        facts: What else to remember of where the graph came from.
    """
    told: dict[str, Any] = dict(facts or {})
    with FolderWriter(Path(path)) as writer:
        arrays = graph
        if not isinstance(arrays, GraphArrays):
            arrays, counted = _laid_out(as_graph(arrays))
            told |= counted
        for name, values in _named(arrays).items():
            column = writer.array(name, _stored_type(values), values.shape[1:])
            for begin in range(0, len(values), _ROWS_AT_ONCE):
                column.append(values[begin : begin + _ROWS_AT_ONCE])
        writer.finish(
            num_nodes=arrays.num_nodes,
            num_features=arrays.num_features,
            num_classes=count_classes(arrays.y, arrays.train, arrays.val),
            facts=told,
        )
    return GraphFolder.open(path)


def checksums(arrays: GraphArrays) -> dict[str, str]:
    """Checksums of the files that :func:`write_folder` would write, by their names."""
    return {
        name: sha256_of_array(values, _stored_type(values))
        for name, values in _named(arrays).items()
    }


def count_classes(
    y: Array | None, train: Array | None, val: Array | None
) -> int | None:
    """The largest label plus one, of training and validation nodes if there are any.

    Labels of other nodes are not looked at then: nothing may be learned from them.
    """
    if y is None:
        return None
    known = y
    if train is not None or val is not None:
        nodes = [np.flatnonzero(mask) for mask in (train, val) if mask is not None]
        known = y[np.concatenate(nodes)]
    return int(known.max(initial=-1)) + 1


def _laid_out(data: Graph) -> tuple[GraphArrays, dict[str, Any]]:
    """The arrays of a graph, and what became of its edges and features."""
    validate(data, labels_needed=False, features_needed=False)
    data = sized(data)
    num_nodes = require_graph(data)
    _check_storable(data, num_nodes)
    source, target = data.edge_index
    counted: dict[str, Any] = {}
    if "x" not in data or data.x is None:
        kept = canonicalise(data).edge_index[1]
        degree = torch.bincount(kept, minlength=num_nodes)
        data = data.clone()
        data.x = torch.from_numpy(log_degree(degree.numpy()))
        counted["features_made"] = LOG_DEGREE
    arrays = GraphArrays.of(data)
    loops = int((source == target).sum())
    counted["edges_read"] = len(source)
    counted["self_loops_dropped"] = loops
    counted["duplicates_merged"] = len(source) - loops - arrays.num_edges
    return arrays, counted


def _check_storable(data: Graph, num_nodes: int) -> None:
    """Raise for what memory may hold and files cannot."""
    for name in ("y", *MASKS):
        if name not in data or data[name] is None:
            continue
        held = whole_numbers(data, name)
        kind = "truth value" if name in MASKS else "class"
        if held.shape != (num_nodes,) or (held.dtype == bool) is not (name in MASKS):
            raise InvalidInput(
                f"{name} has shape {list(held.shape)} and dtype {held.dtype}: expected "
                f"one {kind} for each of {num_nodes} nodes."
            )
    x = data.x if "x" in data else None
    if x is not None and x.dtype not in _FLOATS:
        raise InvalidInput(
            f"x is of {x.dtype}, which files of arrays do not know; expected float16, "
            "float32 or float64."
        )


def _named(arrays: GraphArrays) -> dict[str, Array]:
    """The arrays by the names of their files."""
    named: dict[str, Array | None] = {
        "indptr": arrays.indptr,
        "source": _narrow(arrays.source, arrays.num_nodes),
    }
    if isinstance(arrays.x, CSRArrays):
        named["x_indptr"] = arrays.x.indptr
        named["x_columns"] = arrays.x.columns
        named["x_values"] = arrays.x.values
    else:
        named["x"] = arrays.x
    named["y"] = arrays.y
    named["train_mask"], named["val_mask"] = arrays.train, arrays.val
    named["test_mask"], named["node_id"] = arrays.test, arrays.node_id
    return {name: values for name, values in named.items() if values is not None}


def _stored_type(values: Array) -> np.dtype[Any]:
    """Integers that no format names are stored as int64, the rest as it is."""
    if values.dtype.kind in "iu" and values.dtype.str not in ("<i4", "|i1", "<i2"):
        return np.dtype(np.int64)
    return values.dtype


def _narrow(source: Array, num_nodes: int) -> Array:
    """Node numbers in half the space where they fit."""
    if num_nodes <= np.iinfo(np.int32).max and source.dtype != np.int32:
        return source.astype(np.int32)
    return source
