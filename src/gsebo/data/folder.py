"""Graphs in folders of memory-mapped arrays: for graphs that do not fit in memory.

``docs/graphs_on_disk.md`` describes the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.arrays import Array, CSRArrays, GraphArrays
from gsebo.data.features import LARGEST_DENSE, csr_tensor
from gsebo.data.folder_manifest import MANIFEST, MASKS, Manifest, read_manifest
from gsebo.data.folder_verify import verify_arrays
from gsebo.data.npy_stream import read_header
from gsebo.errors import InvalidInput


def is_graph_folder(path: str | PathLike[str]) -> bool:
    """Whether there is a folder with the manifest of a graph."""
    return (Path(path).expanduser() / MANIFEST).is_file()


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
    def open(cls, path: str | PathLike[str]) -> GraphFolder:
        """Check what can be checked without reading the data.

        These are the manifest, and names, types, shapes and lengths of the files.
        :meth:`verify` reads everything.

        Raises:
            InvalidInput: The folder is no graph or not all there.
        """
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise InvalidInput(f"there is no folder {path}: expected a graph folder.")
        if not is_graph_folder(folder):
            raise InvalidInput(
                f"{path} has no {MANIFEST}: expected a graph folder, as gsebo data "
                "convert writes it."
            )
        manifest = read_manifest(folder)
        for name, entry in manifest.arrays.items():
            file = folder / f"{name}.npy"
            header = read_header(file)
            if (header.dtype.str, header.shape) != (entry.dtype, entry.shape):
                raise InvalidInput(
                    f"{file} holds {header.dtype.str} {list(header.shape)}: expected "
                    f"{entry.dtype} {list(entry.shape)}, as {MANIFEST} says."
                )
        return cls(folder, manifest)

    def arrays(self) -> GraphArrays:
        """The graph, mapped from the files and read-only; nothing is read yet."""
        mapped = {name: self._map(name) for name in self.manifest.arrays}
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

    def labels(self) -> Data:
        """Labels and masks in memory, without edges and features."""
        kept = {
            name: torch.from_numpy(np.array(self._map(name)))
            for name in ("y", *MASKS)
            if name in self.manifest.arrays
        }
        return Data(num_nodes=self.manifest.num_nodes, **kept)

    def verify(self) -> None:
        """Read everything once, in bounded memory, and check it.

        Raises:
            InvalidInput: A checksum differs or the arrays are no graph in canonical
                order; the message names the first bad thing.
        """
        verify_arrays(self.path, self.manifest)

    def to_data(self) -> Data:
        """The graph in memory, for graphs that fit there.

        Features are a dense tensor unless that would hold too many entries.
        """
        manifest = self.manifest
        held = {name: np.array(self._map(name)) for name in manifest.arrays}
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
        return Data(**fields, meta=meta)

    def _map(self, name: str) -> Array:
        file = self.path / f"{name}.npy"
        mapped: Array = np.load(file, mmap_mode="r", allow_pickle=False)
        return mapped


def _features(held: dict[str, Array], columns: int) -> Tensor:
    if "x" in held:
        return torch.from_numpy(held["x"])
    parts = held["x_values"], held["x_columns"], held["x_indptr"]
    shape = (len(parts[2]) - 1, columns)
    if shape[0] * shape[1] <= LARGEST_DENSE:
        return torch.from_numpy(csr_matrix(parts, shape=shape).toarray())
    values, indices, starts = (torch.from_numpy(part) for part in parts)
    return csr_tensor(starts, indices.long(), values, shape)
