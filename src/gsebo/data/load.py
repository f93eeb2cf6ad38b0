"""Graphs by name or by path."""

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from torch_geometric.data import Data

from gsebo.data.digest import content_digest
from gsebo.data.download import download_dataset
from gsebo.data.features import normalise_rows
from gsebo.data.locate import Where, locate
from gsebo.data.npz import load_npz
from gsebo.data.planted import GENERATED
from gsebo.data.registry import DATASETS, DatasetInfo
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup, normalise


def load(
    name_or_path: str | PathLike[str],
    *,
    data_dir: str | PathLike[str] | None = None,
    normalize: bool | None = None,
    download: bool = True,
) -> Data:
    """Load a registered dataset by name, or any graph from its ``.npz`` file.

    The names of :data:`GENERATED`, such as ``"planted"``, are drawn instead.

    >>> load("cora").num_nodes
    2708

    Args:
        name_or_path: A name, or a path: anything that ends in ``.npz``, contains a
            separator or is an existing file.
        data_dir: The folder to look in first; else the environment's ``GSEBO_DATA``.
            Then the user's cache, the package itself, and a download, where the
            dataset has one, are tried.
        normalize: Whether to divide each row of the features by its sum. ``None``
            follows the dataset's protocol (yes for Cora and Citeseer) and leaves
            the features of a path as they are.
        download: Whether a dataset that is not on this machine may be downloaded.

    Returns:
        The graph; ``data.meta["name"]`` is its name.
    """
    if _is_path(name_or_path):
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
        path = _path_of(info, data_dir, download)
        name, by_protocol = info.name, info.normalise_features
    data = load_npz(path)
    if by_protocol if normalize is None else normalize:
        if "x" not in data:
            raise InvalidInput(f"{path} has no features: expected some to normalise.")
        data.x = normalise_rows(data.x)
    data.meta = {**data.meta, "name": data.meta.get("name", name)}
    return data


@dataclass(frozen=True)
class Verification:
    """Whether a dataset on this machine is the published one.

    Attributes:
        name: The dataset.
        where: In which place it was found, or "absent".
        path: Its file.
        ok: Whether it is there, readable and the published graph.
        message: One sentence for a person.
    """

    name: str
    where: Where
    path: Path
    ok: bool
    message: str


def verify(name: str, *, data_dir: str | PathLike[str] | None = None) -> Verification:
    """Compare the digest of a dataset's content with the published graph's."""
    info = lookup("dataset", name, DATASETS)
    where, path = locate(info.name, data_dir)
    if where == "absent":
        return Verification(info.name, where, path, False, "not on this machine.")
    try:
        found = content_digest(load_npz(path))
    except InvalidInput as error:
        return Verification(info.name, where, path, False, str(error))
    if found != info.digest:
        message = f"{path} holds another graph than the published {info.name}."
        return Verification(info.name, where, path, False, message)
    return Verification(info.name, where, path, True, "as published.")


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


def _is_path(name_or_path: str | PathLike[str]) -> bool:
    if not isinstance(name_or_path, str | PathLike):
        raise InvalidInput(
            f"{name_or_path!r:.40} given as a graph: expected a name or a path."
        )
    if not isinstance(name_or_path, str):
        return True
    separators = {"/", os.sep}
    return (
        name_or_path.endswith(".npz")
        or any(separator in name_or_path for separator in separators)
        or os.path.isfile(name_or_path)
    )
