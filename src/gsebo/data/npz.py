"""Graphs in .npz files: the one file format of the package, free of pickle.

=============================================  =====================================
key                                            meaning
=============================================  =====================================
``edge_index``                                 integers ``[2, edges]``
``x_data``, ``x_indices``, ``x_indptr``,       features as CSR, or instead
``x_shape``
``x``                                          features, dense ``[nodes, features]``;
                                               with ``y``, both may be missing
``y``                                          integer classes ``[nodes]``, optional
``train_mask``, ``val_mask``, ``test_mask``    bool ``[nodes]``, optional
``train_masks``, ``val_masks``,                bool ``[splits, nodes]``, optional
``test_masks``
``node_id``                                    distinct integers ``[nodes]``, optional
``meta``                                       JSON text of one object, optional
=============================================  =====================================
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.features import features_from_csr, features_to_csr
from gsebo.data.npz_archive import Arrays, read_arrays, write_arrays
from gsebo.errors import InvalidInput

MASKS = ("train_mask", "val_mask", "test_mask")
MASK_TABLES = ("train_masks", "val_masks", "test_masks")
_CSR = ("x_data", "x_indices", "x_indptr", "x_shape")
_KEYS = ("edge_index", "x", *_CSR, "y", *MASKS, *MASK_TABLES, "node_id", "meta")


def load_npz(path: str | PathLike[str]) -> Data:
    """Read a graph; features stay as stored and ``data.meta`` is a dict.

    Raises:
        InvalidInput: The file is missing, damaged or not in the format above.
    """
    path = Path(path)
    arrays = read_arrays(path, _KEYS)
    x = _read_features(arrays, path)
    fields: dict[str, Any] = {"edge_index": _read_edges(arrays, path)}
    if x is None:
        _expect(arrays, "y", "iu", (None,), path)
        num_nodes = len(arrays["y"])
        fields["num_nodes"] = num_nodes
    else:
        num_nodes = x.shape[0]
        fields["x"] = x
    if "y" in arrays:
        _expect(arrays, "y", "iu", (num_nodes,), path)
        fields["y"] = torch.from_numpy(arrays["y"].astype(np.int64))
    if "node_id" in arrays:
        _expect(arrays, "node_id", "iu", (num_nodes,), path)
        fields["node_id"] = torch.from_numpy(arrays["node_id"].astype(np.int64))
    for key in MASKS:
        if key in arrays:
            _expect(arrays, key, "b", (num_nodes,), path)
    for key in MASK_TABLES:
        if key in arrays:
            _expect(arrays, key, "b", (None, num_nodes), path)
    found = [key for key in (*MASKS, *MASK_TABLES) if key in arrays]
    fields |= {key: torch.from_numpy(arrays[key]) for key in found}
    return Data(**fields, meta=_read_meta(arrays, path))


def save_npz(
    data: Data, path: str | PathLike[str], meta: Mapping[str, Any] | None = None
) -> None:
    """Write a graph whole or not at all; features as CSR where that is smaller.

    Args:
        data: A graph with ``x`` and ``edge_index``; attributes that the format does
            not name are left out.
        path: The file to write or replace.
        meta: Anything JSON can hold; without it ``data.meta`` is written.
    """
    held = {key for key in _KEYS if key in data and data[key] is not None}
    # Without features the labels say how many nodes there are.
    for key in ("edge_index",) if "y" in held else ("x", "edge_index"):
        if key not in held:
            raise InvalidInput(f"the graph has no {key}: expected it, to save it.")
    arrays = {"edge_index": _smallest(data.edge_index)}
    if "x" in held:
        arrays |= _feature_arrays(data.x)
    for key in ("y", *MASKS, *MASK_TABLES, "node_id"):
        if key in data and data[key] is not None:
            arrays[key] = data[key].detach().cpu().numpy()
    stored_meta = data.meta if "meta" in data else {}
    text = _meta_text(stored_meta if meta is None else meta)
    write_arrays(Path(path), {**arrays, "meta": np.array(text)})


def _read_features(arrays: Arrays, path: Path) -> Tensor | None:
    """Return the features; a graph whose labels say its size may have none."""
    if "x" in arrays:
        _expect(arrays, "x", "fiub", (None, None), path)
        with np.errstate(over="ignore"):
            return torch.from_numpy(arrays["x"].astype(np.float32))
    missing = [key for key in _CSR if key not in arrays]
    if len(missing) == len(_CSR):
        if "y" in arrays:
            return None
        raise InvalidInput(
            f"{path} has no features: expected the array 'x', or 'x_data', "
            "'x_indices', 'x_indptr' and 'x_shape', or at least 'y'."
        )
    if missing:
        raise InvalidInput(f"{path} lacks {missing[0]!r}: expected all of x's CSR.")
    return features_from_csr(_read_csr(arrays, path))


def _read_csr(arrays: Arrays, path: Path) -> csr_matrix:
    """Return the stored CSR matrix after checking that its parts fit together."""
    _expect(arrays, "x_shape", "iu", (2,), path)
    rows, columns = (int(side) for side in arrays["x_shape"])
    if rows < 0 or columns < 0:
        raise InvalidInput(f"x_shape of {path} is negative: expected [nodes, features]")
    _expect(arrays, "x_data", "fiub", (None,), path)
    num_entries = len(arrays["x_data"])
    _expect(arrays, "x_indices", "iu", (num_entries,), path)
    _expect(arrays, "x_indptr", "iu", (rows + 1,), path)
    indices = arrays["x_indices"].astype(np.int64)
    starts = arrays["x_indptr"].astype(np.int64)
    if starts[0] != 0 or starts[-1] != num_entries or bool((np.diff(starts) < 0).any()):
        raise InvalidInput(
            f"x_indptr of {path} is inconsistent: expected it to rise from 0 "
            f"to the {num_entries} entries of x_data."
        )
    if num_entries and not 0 <= indices.min() <= indices.max() < columns:
        raise InvalidInput(f"x_indices of {path}: expected columns 0 to {columns - 1}.")
    with np.errstate(over="ignore"):
        values = arrays["x_data"].astype(np.float32)
    matrix = csr_matrix((values, indices, starts), shape=(rows, columns))
    matrix.sum_duplicates()
    return matrix


def _read_edges(arrays: Arrays, path: Path) -> Tensor:
    if "edge_index" not in arrays:
        raise InvalidInput(f"{path} has no edges: expected an array 'edge_index'.")
    _expect(arrays, "edge_index", "iu", (2, None), path)
    return torch.from_numpy(arrays["edge_index"].astype(np.int64))


def _read_meta(arrays: Arrays, path: Path) -> dict[str, Any]:
    if "meta" not in arrays:
        return {}
    try:
        meta = json.loads(str(arrays["meta"]))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"meta of {path} is not JSON: expected JSON text."
        ) from error
    if not isinstance(meta, dict):
        raise InvalidInput(f"meta of {path}: expected a JSON object, got {meta!r:.40}.")
    return meta


def _meta_text(meta: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(meta), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"meta cannot be written ({error}): expected what JSON can hold."
        ) from error


def _expect(
    arrays: Arrays, key: str, kinds: str, shape: tuple[int | None, ...], path: Path
) -> None:
    """Check an array's kind of numbers and its shape, ``None`` meaning any length."""
    array = arrays[key]
    if array.dtype.kind not in kinds:
        names = {"b": "bool", "iu": "integers", "fiub": "real numbers"}
        raise InvalidInput(
            f"{key} of {path}: expected {names[kinds]}, got {array.dtype}."
        )
    fits = array.ndim == len(shape) and all(
        wanted in (None, given)
        for wanted, given in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if side is None else str(side) for side in shape)
        raise InvalidInput(
            f"{key} of {path}: expected shape [{wanted}], got {list(array.shape)}."
        )


def _feature_arrays(x: Tensor) -> dict[str, NDArray[Any]]:
    matrix = features_to_csr(x)
    if x.layout != torch.sparse_csr and 2 * matrix.nnz >= x.numel():
        return {"x": x.detach().cpu().numpy().astype(np.float32)}
    return {
        "x_data": matrix.data,
        "x_indices": _smallest(torch.from_numpy(matrix.indices)),
        "x_indptr": _smallest(torch.from_numpy(matrix.indptr)),
        "x_shape": np.array(matrix.shape, dtype=np.int64),
    }


def _smallest(indices: Tensor) -> NDArray[Any]:
    """Return indices as int32 where they fit, which halves the file."""
    array = indices.detach().cpu().numpy()
    fits = array.size == 0 or np.abs(array).max() <= np.iinfo(np.int32).max
    return array.astype(np.int32 if fits else np.int64)
