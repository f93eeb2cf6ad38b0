"""Graphs by name or by path."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from gsebo.data.datasets.registry import (
    DATASETS,
    FORMATS,
    GENERATED,
    TABLES,
    DatasetInfo,
    RawFile,
    Where,
    cache_folder,
    is_graph_folder,
    is_graph_path,
    is_table,
    is_tables_folder,
    locate,
)
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.npz import MASK_TABLES, save_npz
from gsebo.data.relations import TYPES, kept_with_nodes
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.features import features_to_csr, normalise_rows, whole_numbers
from gsebo.graph.graph import Graph, as_graph
from gsebo.names import imported, lookup, normalise


def content_digest(data: Graph) -> str:
    """Return the sha256 of a graph's edges, raw features, labels and masks.

    Where there are several types of nodes or relations they count, and so do the
    weights of edges and what is known of nodes by metapaths. It does not depend on how
    the features are stored, on the width of integers, on ``meta`` or on the archive
    around the arrays.

    Args:
        data: A graph.
    """
    data = as_graph(data)
    features = features_to_csr(data.x)
    arrays = {
        "edge_index": whole_numbers(data, "edge_index").astype("<i8"),
        "x_data": features.data.astype("<f4"),
        "x_indices": features.indices.astype("<i8"),
        "x_indptr": features.indptr.astype("<i8"),
        "x_shape": np.array(features.shape, dtype="<i8"),
    }
    for key in ("y", *MASKS, *MASK_TABLES):
        if key in data and data[key] is not None:
            arrays[key] = whole_numbers(data, key).astype("<i8")
    if any(key in data for key in TYPES):
        arrays |= _facts_of_types(data)
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).tobytes())
    return digest.hexdigest()


def _facts_of_types(data: Graph) -> dict[str, NDArray[Any]]:
    """What a graph with types has besides."""
    held = {key: whole_numbers(data, key) for key in TYPES if key in data}
    arrays: dict[str, NDArray[Any]] = {k: v.astype("<i8") for k, v in held.items()}
    for key in ("edge_weight", *kept_with_nodes(data)):
        if key in data and key not in arrays:
            arrays[key] = data[key].detach().cpu().numpy().astype("<f4")
    return arrays


_TIMEOUT_SECONDS = 60.0
_WAY_OUT = "or put {name}.npz into a folder and name the folder in GSEBO_DATA."


def download_dataset(name: str) -> Path:
    """Download a dataset into the user's cache and return the path of its file.

    Raw files are checked against their published size and sha256, the finished graph
    against its digest; nothing is kept unless everything is right.

    Args:
        name: Of a registered dataset.
    """
    info = lookup("dataset", name, DATASETS)
    if info.convert is None:
        raise InvalidInput(
            f"{info.name} cannot be downloaded by gsebo: expected {info.file} in a "
            f"folder that GSEBO_DATA names, or in the cache {cache_folder()}."
        )
    files = {raw.file: _fetch(raw, info.name) for raw in info.raw_files}
    graph = info.convert(files)
    if content_digest(graph) != info.digest:
        raise InvalidInput(f"{info.name} was converted to another graph than expected.")
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot make the cache folder {folder}: expected to be allowed to; "
            "GSEBO_CACHE names another."
        ) from error
    path = folder / f"{info.name}.npz"
    meta = {"name": info.name, "source": info.source, "licence": info.licence}
    save_npz(graph, path, meta, overwrite=True)
    return path


def open_url(url: str) -> Any:
    """Open a URL for reading; the one place that touches the network."""
    return urlopen(url, timeout=_TIMEOUT_SECONDS)


def _fetch(raw: RawFile, name: str) -> bytes:
    try:
        with open_url(raw.pinned_url) as response:
            payload: bytes = response.read(raw.bytes + 1)
    except (OSError, HTTPException) as error:
        raise InvalidInput(
            f"cannot download {name} from {raw.pinned_url} ({error}): expected a "
            f"connection, {_WAY_OUT.format(name=name)}"
        ) from error
    if len(payload) != raw.bytes or hashlib.sha256(payload).hexdigest() != raw.sha256:
        raise InvalidInput(
            f"the download of {name} from {raw.pinned_url} is damaged: expected "
            f"{raw.bytes} bytes with sha256 {raw.sha256[:12]}...; try again, "
            f"{_WAY_OUT.format(name=name)}"
        )
    return payload


def load_data(
    name_or_path: str | PathLike[str],
    *,
    data_dir: str | PathLike[str] | None = None,
    normalize: bool | None = None,
    download: bool = True,
    nodes: str | PathLike[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    delimiter: str | None = None,
    leave_out: Sequence[str] | None = None,
    directed: bool | None = None,
) -> Graph:
    """Load a registered dataset by name, or any graph from its file or folder.

    The names of :data:`GENERATED`, such as ``"planted"``, are drawn instead.

    >>> load_data("cora").num_nodes
    2708

    A folder with tables of several types of nodes and relations, called
    ``nodes.TYPE.csv`` and ``edges.SOURCE.NAME.TARGET.csv``, is a graph with types:
    each table is read as follows, nodes are called ``"TYPE:id"``, and relations that
    go the other way are added as ``rev_NAME`` unless they are there.

    A CSV, TSV or Parquet file is an edge list. Ids are whole numbers, or texts if one
    of them is; nodes are those of the node table, or else all that edges name, in the
    order of their numbers, or of texts as they come. Edges come in the order of the
    rows that name them first, and then those that are added as their reverse; weights
    of rows that name the same edge add up, and self-loops are left out.

    Args:
        name_or_path: A name; a path: anything that ends as one of :data:`FORMATS`,
            contains a separator or is an existing file; or a folder with tables, or a
            graph folder, which is read whole.
        data_dir: The folder to look in first; else the environment's ``GSEBO_DATA``.
            Then the user's cache, the package itself, and a download, where the
            dataset has one, are tried.
        normalize: Whether to divide each row of the features by its sum. ``None``
            follows the dataset's protocol (yes for Cora and Citeseer) and leaves
            the features of a path as they are.
        download: Whether a dataset that is not on this machine may be downloaded.
        nodes: Of an edge list, the table of its nodes: ids, labels, a column ``split``
            (``train``, ``val``, ``test``) or masks, and features, which are all other
            columns of numbers.
        source: Column of the edge list; ``source`` by default.
        target: Column of the edge list; ``target`` by default.
        id: Column of the node table; ``id`` by default. Without any, nodes are called
            by the numbers of their rows, from 0.
        label: Column of the node table; ``label``, ``y`` or ``class`` by default. Empty
            where a class is not known; names of classes are in ``meta["classes"]``.
        weight: Column of the edge list; ``weight`` by default, if there is one.
        delimiter: One character, ``"tab"`` or ``"space"``; by default whichever is in
            the first line.
        leave_out: Columns of the node table that are no features.
        directed: Whether an edge goes one way only, from source to target; by default
            each goes both ways.

    Returns:
        The graph; ``data.meta["name"]`` is its name.
    """
    columns = {"source": source, "target": target, "id": id, "label": label}
    more = {"nodes": nodes, "weight": weight, "delimiter": delimiter}
    options = {**columns, **more, "leave_out": leave_out, "directed": directed}
    table_options = {name: each for name, each in options.items() if each is not None}
    named = not is_graph_path(name_or_path)
    folder = is_graph_folder(name_or_path)
    typed = is_tables_folder(name_or_path)
    if table_options and (folder or not (typed or is_table(name_or_path))):
        raise InvalidInput(
            f"{escaped(str(name_or_path), longest=200)} given with "
            f"{', '.join(table_options)}, which are for tables: expected an edge list "
            f"that ends in {', '.join(TABLES)}."
        )
    if typed and nodes is not None:
        raise InvalidInput(
            f"{escaped(str(name_or_path), longest=200)} given with nodes: expected "
            "none, for the folder has the tables of the nodes."
        )
    reader: Callable[..., Graph] | None = imported(_TABLES) if typed else None
    if folder or typed or not named:
        path = Path(os.path.expanduser(name_or_path))
        name, by_protocol = path.stem, False
    elif (drawn := normalise(str(name_or_path))) in GENERATED:
        data = GENERATED[drawn].make()
        if normalize:
            data.x = normalise_rows(data.x)
        data.meta = {"name": drawn}
        return data
    else:
        info = lookup("dataset", str(name_or_path), DATASETS)
        path, reader = _path_of(info, data_dir, download), info.read
        name, by_protocol = info.name, info.normalise_features
    if folder:
        data = GraphFolder.open(path).to_data()
    elif reader is not None:
        data = reader(path, **table_options)
    else:
        # A file that is called otherwise can only be one of ours.
        suffix = path.suffix.lower()
        data = FORMATS[suffix if suffix in FORMATS else ".npz"](path, **table_options)
        data.meta = data.meta or {}
    if by_protocol if normalize is None else normalize:
        if "x" not in data:
            raise InvalidInput(f"{path} has no features: expected some to normalise.")
        data.x = normalise_rows(data.x)
    data.meta = {**data.meta, "name": data.meta.get("name", name)}
    return data


_TABLES = "gsebo.data.formats.typed_tables:load_typed_tables"
load = load_data
"""The same, where ``data.`` is in front."""


@dataclass(frozen=True)
class Verification:
    """Whether a dataset on this machine is there, readable and the published one.

    Attributes:
        name: Of the dataset.
        where: ``"data_dir"``, ``"cache"``, ``"embedded"`` or ``"absent"``.
        path: Its file, or where that would be.
        ok: Whether it is the published graph.
        message: A sentence that says so, or what is wrong.
    """

    name: str
    where: Where
    path: Path
    ok: bool
    message: str


def verify(name: str, *, data_dir: str | PathLike[str] | None = None) -> Verification:
    """Compare the digest of a dataset's content with the published graph's.

    Args:
        name: Of a registered dataset.
        data_dir: A folder to look in first.
    """
    info = lookup("dataset", name, DATASETS)
    where, path = locate(info.name, data_dir)
    ok, message = False, "not on this machine."
    if where != "absent":
        try:
            ok = content_digest(info.read(path)) == info.digest
            message = f"{path} holds another graph than the published {info.name}."
        except InvalidInput as error:
            message = str(error)
    return Verification(info.name, where, path, ok, "as published." if ok else message)


def _path_of(
    info: DatasetInfo, data_dir: str | PathLike[str] | None, may_download: bool
) -> Path:
    where, path = locate(info.name, data_dir)
    if where != "absent":
        return path
    # Where there is no download, asking for one tells where the file belongs.
    if not may_download and info.convert is not None:
        raise InvalidInput(
            f"{info.name} is not on this machine: expected {info.name}.npz in a "
            "folder that GSEBO_DATA names, or download=True."
        )
    return download_dataset(info.name)
