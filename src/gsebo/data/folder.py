"""Graphs in folders of memory-mapped arrays: for graphs that do not fit in memory.

``docs/graphs_on_disk.md`` describes the format.
"""

from __future__ import annotations

import os
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
from gsebo.data.folder_check import check_arrays
from gsebo.data.folder_manifest import MANIFEST, MASKS, Manifest, read_manifest
from gsebo.data.npy_stream import map_array
from gsebo.errors import InvalidInput, escaped


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

    def labels(self) -> Data:
        """Labels and masks in memory, without edges and features."""
        kept = {
            name: torch.from_numpy(np.array(array))
            for name, array in self._mapped().items()
            if name in ("y", *MASKS)
        }
        return Data(num_nodes=self.manifest.num_nodes, **kept)

    def verify(self) -> None:
        """Read everything again, in bounded memory, and check it.

        Raises:
            InvalidInput: A checksum differs or the arrays are no graph in canonical
                order; the message names the first bad thing.
        """
        check_arrays(self.path, self.manifest, anew=True)

    def to_data(self) -> Data:
        """The graph in memory, for graphs that fit there.

        Features are a dense tensor unless that would hold too many entries.
        """
        manifest = self.manifest
        held = {name: np.array(array) for name, array in self._mapped().items()}
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
