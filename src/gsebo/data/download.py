"""Fetches a dataset's raw files, checks and converts them, and keeps the result."""

import hashlib
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from torch_geometric.data import Data

from gsebo.data.digest import content_digest
from gsebo.data.locate import cache_folder
from gsebo.data.npz import save_npz
from gsebo.data.registry import DATASETS, DatasetInfo, RawFile
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup

_TIMEOUT_SECONDS = 60.0
_WAY_OUT = "or put {name}.npz into a folder and name the folder in GSEBO_DATA."


def download_dataset(name: str) -> Path:
    """Download a dataset into the user's cache and return the path of its file.

    Raw files are checked against their published size and sha256, the finished graph
    against its digest; nothing is kept unless everything is right.

    Raises:
        InvalidInput: The dataset has no download, or a file could not be fetched or is
            not the published one.
    """
    info = lookup("dataset", name, DATASETS)
    if info.convert is None:
        raise InvalidInput(
            f"{info.name} cannot be downloaded by gsebo: expected {info.name}.npz in a "
            f"folder that GSEBO_DATA names, or in the cache {cache_folder()}."
        )
    files = {raw.file: _fetch(raw, info.name) for raw in info.raw_files}
    graph = info.convert(files)
    if content_digest(graph) != info.digest:
        raise InvalidInput(f"{info.name} was converted to another graph than expected.")
    return _store(graph, info)


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


def _store(graph: Data, info: DatasetInfo) -> Path:
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
    save_npz(graph, path, meta)
    return path
