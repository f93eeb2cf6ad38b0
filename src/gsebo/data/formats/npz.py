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
``node_id``                                    distinct integers or texts ``[nodes]``,
                                               optional
``edge_weight``                                numbers ``[edges]``, not negative,
                                               optional
``edge_attr``                                  numbers ``[edges]`` or
                                               ``[edges, columns]``, optional
``node_type``, ``edge_type``                   integers ``[nodes]``, ``[edges]``, whose
                                               names are in ``meta``, optional
``metapath:NAME``                              numbers ``[nodes, columns]``, optional
``meta``                                       JSON text of one object, optional
=============================================  =====================================

Arrays with other names are left alone.
"""

import json
import os
from collections.abc import Mapping
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.data.formats.edge_values import (
    EDGE_VALUES,
    checked_edge_values,
    real_numbers_of,
)
from gsebo.data.formats.npz_archive import (
    Arrays,
    expect,
    integers,
    read_arrays,
    write_arrays,
)
from gsebo.data.relations import TYPES, require_types
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput, escaped
from gsebo.files import json_as
from gsebo.graph.features import (
    fault_of_rows,
    features_from_csr,
    features_to_csr,
    require_features,
    require_used_columns,
    whole_numbers,
)
from gsebo.graph.graph import TYPE_NAMES, Graph, GraphLike, as_graph
from gsebo.graph.hetero import METAPATH
from gsebo.graph.node_match import node_ids

MASK_TABLES = tuple(f"{mask}s" for mask in MASKS)
_CSR = ("x_data", "x_indices", "x_indptr", "x_shape")
_NAMES = "node_id"
_OF_NODES = ("y", *MASKS, *MASK_TABLES, _NAMES)
_KEYS = ("edge_index", "x", *_CSR, *_OF_NODES, *EDGE_VALUES, *TYPES, "meta")
_GIVEN = "the graph"


def load_npz(path: str | PathLike[str]) -> Graph:
    """Read a graph; features stay as stored and ``data.meta`` is a dict.

    Args:
        path: Of an ``.npz`` file.

    Raises:
        InvalidInput: The file is missing, damaged or not in the format above.
    """
    arrays = read_arrays(Path(path), _KEYS, (METAPATH,))
    where = escaped(str(path))
    x = read_features(arrays, where)
    if x is None:
        expect(arrays, "y", "iu", (None,), where)
    num_nodes = len(arrays["y"]) if x is None else x.shape[0]
    if num_nodes == 0:
        raise InvalidInput(f"{where} has no nodes: expected at least one.")
    fields: dict[str, Any] = {
        key: array if array.dtype.kind == "U" else torch.from_numpy(array)
        for key, array in _checked(arrays, num_nodes, where).items()
    }
    edges = fields.pop("edge_index")
    size: dict[str, Any] = {"num_nodes": num_nodes} if x is None else {"x": x}
    meta = _read_meta(arrays, where)
    graph = Graph(edge_index=edges, **size, **fields, meta=meta)
    require_types(graph, num_nodes, where)
    return graph


def save_npz(
    data: GraphLike,
    path: str | PathLike[str],
    meta: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a graph whole or not at all; features as CSR where that is smaller.

    Args:
        data: A graph with ``x`` and ``edge_index``; attributes that the format does
            not name are left out.
        path: The file to write.
        meta: Anything JSON can hold; without it ``data.meta`` is written.
        overwrite: Whether a file that is there already may be replaced.
    """
    if not overwrite and os.path.lexists(path):
        raise InvalidInput(
            f"{path} is there already; expected another name, or overwrite=True to "
            "replace it."
        )
    data = as_graph(data)
    paths = [key for key, _ in data if key.startswith(METAPATH)]
    held = {key for key in (*_KEYS, *paths) if key in data and data[key] is not None}
    # Without features the labels say how many nodes there are.
    for key in ("edge_index",) if "y" in held else ("x", "edge_index"):
        if key not in held:
            raise InvalidInput(f"the graph has no {key}: expected it, to save it.")
    texts = node_ids(data) if not isinstance(data.node_id, Tensor) else None
    whole = held - {"x", "meta", *EDGE_VALUES, *([] if texts is None else [_NAMES])}
    whole -= {*paths}
    arrays = {key: whole_numbers(data, key) for key in _KEYS if key in whole}
    if texts is not None:
        arrays[_NAMES] = np.asarray(texts)
    arrays |= real_numbers_of(data, (*EDGE_VALUES, *paths))
    expect(arrays, "edge_index", "iu", (2, None), _GIVEN)
    arrays["edge_index"] = _smallest(arrays["edge_index"])
    if "x" in held:
        require_features(data.x, floating=False)
        arrays |= _feature_arrays(data.x)
    num_nodes = data.x.shape[0] if "x" in held else len(arrays["y"])
    _checked(arrays, num_nodes, _GIVEN)
    own = data.meta if isinstance(data.meta, Mapping) else {}
    if meta is None:
        meta = own
    elif any(key in data for key in TYPES):
        # Without their names types and relations would be others.
        meta = {**{key: own[key] for key in TYPE_NAMES if key in own}, **meta}
    written = copy(data)
    written.meta = dict(meta)
    require_types(written, num_nodes)
    try:
        text = json.dumps(written.meta, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"meta cannot be written ({error}): expected what JSON can hold."
        ) from error
    write_arrays(Path(path), {**arrays, "meta": np.array(text)})


def read_features(arrays: Arrays, where: str) -> Tensor | None:
    """Return the features; a graph whose labels say its size may have none."""
    if "x" in arrays:
        expect(arrays, "x", "fiub", (None, None), where)
        if arrays["x"].shape[1] == 0:
            raise InvalidInput(f"x of {where} has no columns: expected a feature.")
        with np.errstate(over="ignore"):
            return torch.from_numpy(arrays["x"].astype(np.float32, order="C"))
    missing = [key for key in _CSR if key not in arrays]
    if len(missing) == len(_CSR):
        if "y" in arrays:
            return None
        raise InvalidInput(
            f"{where} has no features: expected the array 'x', or 'x_data', "
            "'x_indices', 'x_indptr' and 'x_shape', or at least 'y'."
        )
    if missing:
        raise InvalidInput(f"{where} lacks {missing[0]!r}: expected all of x's CSR.")
    return features_from_csr(_read_csr(arrays, where))


def _read_csr(arrays: Arrays, where: str) -> csr_matrix:
    """Return the stored CSR matrix after checking that its parts fit together."""
    rows, columns = (int(side) for side in integers(arrays, "x_shape", (2,), where))
    if rows < 0 or columns < 0:
        raise InvalidInput(
            f"x_shape of {where} is negative: expected [nodes, features]."
        )
    if columns == 0:
        raise InvalidInput(f"x of {where} has no columns: expected a feature.")
    expect(arrays, "x_data", "fiub", (None,), where)
    num_entries = len(arrays["x_data"])
    require_used_columns(columns, num_entries, f"x_shape of {where}")
    indices = integers(arrays, "x_indices", (num_entries,), where)
    starts = integers(arrays, "x_indptr", (rows + 1,), where)
    fault = fault_of_rows(
        torch.from_numpy(starts), torch.from_numpy(indices), num_entries, columns
    )
    if fault is not None:
        raise InvalidInput(f"x_{fault[0]} of {where} is inconsistent: {fault[1]}.")
    with np.errstate(over="ignore"):
        values = arrays["x_data"].astype(np.float32)
    matrix = csr_matrix((values, indices, starts), shape=(rows, columns))
    matrix.sum_duplicates()
    return matrix


def _checked(arrays: Arrays, num_nodes: int, where: str) -> dict[str, NDArray[Any]]:
    """Edges, labels, names and masks, once they are found to fit the nodes."""
    if "edge_index" not in arrays:
        raise InvalidInput(f"{where} has no edges: expected an array 'edge_index'.")
    edges = integers(arrays, "edge_index", (2, None), where)
    low, high = (int(edges.min()), int(edges.max())) if edges.size else (0, 0)
    if low < 0 or high >= num_nodes:
        raise InvalidInput(
            f"edge_index of {where} names node {low if low < 0 else high}: expected 0 "
            f"to {num_nodes - 1}."
        )
    found: dict[str, NDArray[Any]] = {"edge_index": edges}
    if "y" in arrays:
        found["y"] = integers(arrays, "y", (num_nodes,), where)
    if _NAMES in arrays:
        found[_NAMES] = _checked_names(arrays, num_nodes, where)
    for key in (*MASKS, *MASK_TABLES):
        if key in arrays:
            sides = (num_nodes,) if key in MASKS else (None, num_nodes)
            expect(arrays, key, "b", sides, where)
            found[key] = arrays[key]
            # A truth value is a byte, and other bytes than 0 and 1 are neither.
            if found[key].size and int(found[key].view(np.uint8).max()) > 1:
                raise InvalidInput(
                    f"{key} of {where} is damaged: expected true and false."
                )
    for key, size in zip(TYPES, (num_nodes, edges.shape[1]), strict=True):
        if key in arrays:
            found[key] = integers(arrays, key, (size,), where)
    for key in (key for key in arrays if key.startswith(METAPATH)):
        found[key] = checked_metapath(arrays, key, num_nodes, where)
    return found | checked_edge_values(arrays, edges.shape[1], where)


def checked_metapath(
    arrays: Arrays, key: str, num_nodes: int, where: str
) -> NDArray[np.float32]:
    """What is known of each node by a path of relations, in single precision."""
    expect(arrays, key, "fiub", (num_nodes, None), where)
    with np.errstate(over="ignore"):
        values: NDArray[np.float32] = arrays[key].astype(np.float32, order="C")
    if not values.shape[1] or not np.isfinite(values).all():
        raise InvalidInput(
            f"{escaped(key, longest=60)} of {where} has {values.shape[1]} columns, or "
            "numbers that are not finite: expected some finite numbers for each node."
        )
    return values


def _checked_names(arrays: Arrays, num_nodes: int, where: str) -> NDArray[Any]:
    if arrays[_NAMES].dtype.kind != "U":
        return integers(arrays, _NAMES, (num_nodes,), where)
    expect(arrays, _NAMES, "U", (num_nodes,), where)
    try:
        # Four bytes for each character need not be one that there is.
        "".join(arrays[_NAMES].tolist()).encode()
    except (ValueError, SystemError) as error:
        raise InvalidInput(
            f"node_id of {where} is no text: expected names of the nodes."
        ) from error
    return arrays[_NAMES]


def _read_meta(arrays: Arrays, where: str) -> dict[str, Any]:
    if "meta" not in arrays:
        return {}
    expect(arrays, "meta", "U", (), where)
    try:
        text = str(arrays["meta"].item())
    except (ValueError, SystemError) as error:
        # Four bytes for each character need not be one that there is.
        raise InvalidInput(f"meta of {where} is no text: expected JSON.") from error
    meta = json_as(dict[str, Any], text, f"meta of {where}", "a JSON object")
    if not isinstance(meta.get("name", ""), str):
        raise InvalidInput(f"meta of {where} has a name that is no text: expected one.")
    return meta


def _feature_arrays(x: Tensor) -> dict[str, NDArray[Any]]:
    matrix = features_to_csr(x)
    if x.layout != torch.sparse_csr and 2 * matrix.nnz >= x.numel():
        return {"x": x.detach().cpu().to(torch.float32).numpy()}
    return {
        "x_data": matrix.data,
        "x_indices": _smallest(matrix.indices),
        "x_indptr": _smallest(matrix.indptr),
        "x_shape": np.array(matrix.shape, dtype=np.int64),
    }


def _smallest(array: NDArray[Any]) -> NDArray[Any]:
    """Return indices as int32 where they fit, which halves the file."""
    fits = array.size == 0 or np.abs(array).max() <= np.iinfo(np.int32).max
    return array.astype(np.int32 if fits else np.int64)
