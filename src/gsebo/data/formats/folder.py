"""Graphs in folders of memory-mapped arrays: for graphs that do not fit in memory.

``docs/guides/graphs_on_disk.md`` describes the format.
"""

from __future__ import annotations

import copy
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.data.datasets.registry import MANIFEST, is_graph_folder
from gsebo.data.formats.edge_values import EDGE_VALUES
from gsebo.data.formats.folder_check import (
    CheckedFiles,
    check_arrays,
    read_through,
    rule_of,
)
from gsebo.data.formats.manifest import (
    ArrayEntry,
    Manifest,
    manifest_of,
    read_manifest,
)
from gsebo.data.formats.npy_stream import NpyWriter, map_array, sha256_of_array
from gsebo.data.relations import refuse_types
from gsebo.data.validate import MASKS, require_graph, sized, validate
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.arrays import Array, CSRArrays, GraphArrays
from gsebo.graph.features import LARGEST_DENSE, csr_tensor, whole_numbers
from gsebo.graph.graph import Graph, GraphLike, as_graph
from gsebo.graph.topology import canonicalise
from gsebo.memory import require_memory
from gsebo.version import __version__

_ROWS_AT_ONCE = 2**16
_FLOATS = (torch.float16, torch.float32, torch.float64)
_PARTS_OF_CSR = ("indptr", "columns", "values")
# Arrays of one number per node, by the names of their files.
_OF_NODES = {
    "y": "y",
    "train_mask": "train",
    "val_mask": "val",
    "test_mask": "test",
    "node_id": "node_id",
}
# Characters of a name that are kept in another name, of four bytes each at most.
_LONGEST = 50
LOG_DEGREE = "log(1 + edges into the node)"
"""What is said of the one feature of a graph that came without features."""


@final
@dataclass(frozen=True)
class GraphFolder:
    """A graph on disk, in the folder ``path``, which says of itself ``manifest``."""

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
        """
        folder = Path(os.path.expanduser(path))
        if not os.path.isdir(folder):
            raise InvalidInput(f"there is no folder {path}: expected a graph folder.")
        if not is_graph_folder(folder):
            raise InvalidInput(
                f"{path} has no {MANIFEST}: expected a graph folder, as gsebo data "
                "convert writes it."
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
            parts = {part: mapped[f"x_{part}"] for part in _PARTS_OF_CSR}
            x = CSRArrays(**parts, num_columns=self.manifest.num_features)
        fields = {field: mapped.get(name) for name, field in _OF_NODES.items()}
        fields |= {name: mapped.get(name) for name in EDGE_VALUES}
        return GraphArrays(mapped["indptr"], mapped["source"], x, **fields)

    def labels(self) -> Graph:
        """Labels and masks in memory, without edges and features."""
        kept = {
            name: torch.from_numpy(np.array(array))
            for name, array in self._mapped().items()
            if name in ("y", *MASKS)
        }
        return Graph(num_nodes=self.manifest.num_nodes, **kept)

    def ids(self) -> Array:
        """What the user calls each node, in memory: whole numbers or texts."""
        held = self._mapped().get("node_id")
        if held is None:
            return np.arange(self.manifest.num_nodes)
        return _user_ids(np.array(held))

    def verify(self) -> None:
        """Read everything again, in bounded memory, and raise for the first fault."""
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
                found = _user_ids(held[name])
                is_text = found.dtype.kind == "U"
                fields[name] = found if is_text else torch.from_numpy(found)
        as_they_are = [name for name in (*MASKS, *EDGE_VALUES) if name in held]
        fields |= {name: torch.from_numpy(held[name]) for name in as_they_are}
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


def _features(held: dict[str, Array], columns: int) -> Tensor:
    if "x" in held:
        return torch.from_numpy(held["x"])
    parts = held["x_values"], held["x_columns"], held["x_indptr"]
    shape = (len(parts[2]) - 1, columns)
    if shape[0] * shape[1] <= LARGEST_DENSE:
        return torch.from_numpy(csr_matrix(parts, shape=shape).toarray())
    values, indices, starts = (torch.from_numpy(part) for part in parts)
    return csr_tensor(starts, indices.long(), values, shape)


@contextmanager
def new_folder(path: str | PathLike[str]) -> Iterator[FolderWriter]:
    """A folder that is filled under another name and gets its own at the end.

    Nothing may be there yet but an empty folder. Leaving the context after
    :meth:`FolderWriter.finish` renames the folder, leaving it by an exception removes
    everything. A process that is killed leaves at most a folder whose name begins with
    a dot and ends in ``.partial``.
    """
    final = Path(os.path.expanduser(path)).absolute()
    if os.path.lexists(final) and not (final.is_dir() and not any(final.iterdir())):
        raise InvalidInput(f"{path} is there already: expected a new name.")
    # Cut, because a name that is just short enough has no room for more.
    name = f".{final.name[:_LONGEST]}.{secrets.token_hex(4)}.partial"
    writer = FolderWriter(final, final.parent / name)
    made: list[Path] = []
    try:
        made = [one for one in final.parents if not one.exists()]
        try:
            writer.scratch.mkdir(parents=True)
        except ValueError as error:
            # No path at all.
            raise OSError(str(error)) from error
        yield writer
        writer.appear()
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"cannot write {final} ({reason}); expected a place that is writable, with "
            "enough room."
        ) from error
    finally:
        writer.close()
        # Nothing is left if all went well.
        shutil.rmtree(writer.folder, ignore_errors=True)
        for folder in made:
            # Those that hold the result, or something of others, stay.
            with suppress(OSError):
                folder.rmdir()


@final
class FolderWriter:
    """Arrays of a folder that has another name yet than its final one.

    ``scratch`` is a folder for what is of use meanwhile only.
    """

    def __init__(self, final: Path, folder: Path) -> None:
        self._final, self.folder, self.scratch = final, folder, folder / "scratch"
        self._writers: dict[str, NpyWriter] = {}
        self._manifest: Manifest | None = None

    def array(
        self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()
    ) -> NpyWriter:
        """Begin an array; what it is given goes to its file at once."""
        writer = NpyWriter(self.folder / f"{name}.npy", dtype, row_shape)
        self._writers[name] = writer
        return writer

    def finish(
        self,
        num_classes: int | None,
        facts: dict[str, Any],
        *,
        num_features: int | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        """Close the arrays and write the manifest; facts are anything JSON can hold.

        The number of features need not be given where they are dense.
        """
        for writer in self._writers.values():
            writer.close()
        if num_features is None:
            num_features = self._writers["x"].row_shape[0]
        arrays = {
            name: ArrayEntry(
                dtype=writer.dtype.str,
                shape=writer.shape,
                sha256="0" * 64,
            )
            for name, writer in self._writers.items()
        }
        manifest = Manifest(
            num_nodes=self._writers["indptr"].rows - 1,
            num_edges=self._writers["source"].rows,
            num_features=num_features,
            num_classes=num_classes,
            features="dense" if "x" in arrays else "sparse",
            classes=classes,
            arrays=arrays,
            facts={"written_by": f"gsebo {__version__}", **facts},
        )
        manifest = self._as_read(manifest)
        files = CheckedFiles(self.folder, arrays)
        found = read_through(self.folder, manifest, self._final)
        self._manifest = manifest.with_checksums(found)
        # Moved to another name, files are still the same.
        files.remember(rule_of(self._manifest))

    def _as_read(self, manifest: Manifest) -> Manifest:
        """The manifest, if it can be read back."""
        try:
            text = manifest.text().encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"cannot write {self._final / MANIFEST} "
                f"({escaped(str(error), longest=80)}); expected names and facts of "
                "plain text and finite numbers."
            ) from error
        return manifest_of(text, self._final / MANIFEST)

    def appear(self) -> None:
        if self._manifest is None:
            raise RuntimeError("a graph folder was left before it was finished")
        shutil.rmtree(self.scratch)
        with (self.folder / MANIFEST).open("x", encoding="utf-8") as file:
            file.write(self._manifest.text())
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.folder)
        # Replaces an empty folder, and fails if it is not empty any more.
        os.rename(self.folder, self._final)
        _sync_folder(self._final.parent)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.discard()


def _sync_folder(path: Path) -> None:
    """Make names on the disk as safe as the content of files."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def log_degree(degree: NDArray[np.integer]) -> NDArray[np.float32]:
    """The one feature, ``[nodes, 1]``, of a graph that came without features.

    >>> log_degree(np.array([0, 1])).tolist()
    [[0.0], [0.6931471824645996]]
    """
    # The logarithms of numpy and torch round differently with AVX-512 and on several
    # threads; there are few different degrees.
    few, place = np.unique(degree, return_inverse=True)
    logarithm = [math.log1p(one) for one in few.tolist()]
    return np.array(logarithm, np.float32)[place, None]


def with_log_degree(data: Graph) -> Graph:
    """A shallow copy of a graph without features, with the one feature."""
    data = copy.copy(sized(data))
    kept = canonicalise(data).edge_index[1]
    degree = torch.bincount(kept.cpu(), minlength=data.num_nodes)
    data.x = torch.from_numpy(log_degree(degree.numpy()))
    return data


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
    known: dict[str, Any] = dict(facts or {})
    with new_folder(path) as writer:
        arrays = graph
        if not isinstance(arrays, GraphArrays):
            arrays, counted = _laid_out(as_graph(arrays))
            known |= counted
        names = None if isinstance(graph, GraphArrays) else as_graph(graph).class_names
        for name, values in _named(arrays).items():
            column = writer.array(name, _stored_type(values), values.shape[1:])
            for begin in range(0, len(values), _ROWS_AT_ONCE):
                column.append(values[begin : begin + _ROWS_AT_ONCE])
        num_classes = count_classes(arrays.y, arrays.train, arrays.val)
        writer.finish(
            num_classes,
            known,
            num_features=arrays.num_features,
            classes=None if names is None or arrays.y is None else tuple(names),
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

    Labels of other nodes are not read then: nothing may be learned from them.
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
    refuse_types(
        data,
        "the graph",
        "a graph folder holds one of each",
        "graph.without_types(), or an .npz file (gsebo.data.save_npz)",
    )
    data = sized(data)
    num_nodes = require_graph(data)
    _check_storable(data, num_nodes)
    source, target = data.edge_index
    counted: dict[str, Any] = {}
    if "x" not in data or data.x is None:
        data = with_log_degree(data)
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
    source = arrays.source
    if arrays.num_nodes <= np.iinfo(np.int32).max and source.dtype != np.int32:
        # Node numbers in half the space where they fit.
        source = source.astype(np.int32)
    named: dict[str, Array | None] = {"indptr": arrays.indptr, "source": source}
    if isinstance(arrays.x, CSRArrays):
        named |= {f"x_{part}": getattr(arrays.x, part) for part in _PARTS_OF_CSR}
    else:
        named["x"] = arrays.x
    named |= {name: getattr(arrays, field) for name, field in _OF_NODES.items()}
    if arrays.node_id is not None:
        named["node_id"] = stored_ids(arrays.node_id)
    named |= {name: getattr(arrays, name) for name in EDGE_VALUES}
    return {name: values for name, values in named.items() if values is not None}


def stored_ids(ids: Array) -> Array:
    """Ids as files hold them: texts as bytes in UTF-8, all of the same width."""
    return np.char.encode(ids, "utf-8") if ids.dtype.kind == "U" else ids


def _user_ids(stored: Array) -> Array:
    """The same numbers or texts as they are in memory."""
    if stored.dtype.kind == "S":
        return np.char.decode(stored, "utf-8")
    return stored.astype(np.int64)


def _stored_type(values: Array) -> np.dtype[Any]:
    """Integers that no format names are stored as int64, the rest as it is."""
    if values.dtype.kind in "iu" and values.dtype.str not in ("<i4", "|i1", "<i2"):
        return np.dtype(np.int64)
    return values.dtype
