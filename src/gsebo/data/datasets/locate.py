"""Where a dataset known by name is found on this machine."""

import os
from os import PathLike
from pathlib import Path
from typing import Literal

from gsebo.data.datasets.registry import DATASETS
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup

Where = Literal["data_dir", "cache", "embedded", "absent"]

_EMBEDDED = Path(__file__).parent / "embedded"


def locate(
    name: str, data_dir: str | PathLike[str] | None = None
) -> tuple[Where, Path]:
    """Find the file of a dataset: given folder, user's cache, inside the package.

    Args:
        name: Name of a registered dataset.
        data_dir: The folder to look in first; else the environment's ``GSEBO_DATA``.

    Returns:
        In which place it is and its path; for "absent", its place in the cache.
    """
    file = f"{lookup('dataset', name, DATASETS).name}.npz"
    places: list[tuple[Where, Path]] = [
        ("cache", cache_folder() / file),
        ("embedded", _EMBEDDED / file),
    ]
    folder = _given_folder(data_dir)
    if folder is not None:
        places.insert(0, ("data_dir", folder / file))
    for where, path in places:
        if os.path.isfile(path):
            return where, path
    return "absent", cache_folder() / file


def cache_folder() -> Path:
    """Return the folder for downloads: ``GSEBO_CACHE`` or the user's usual cache."""
    own = os.environ.get("GSEBO_CACHE")
    if own:
        return Path(os.path.expanduser(own))
    usual = os.environ.get("XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "gsebo"


def _given_folder(data_dir: str | PathLike[str] | None) -> Path | None:
    given = os.environ.get("GSEBO_DATA") if data_dir is None else os.fspath(data_dir)
    if not given:
        return None
    folder = Path(os.path.expanduser(given))
    if not os.path.isdir(folder):
        origin = "GSEBO_DATA" if data_dir is None else "data_dir"
        raise InvalidInput(f"{origin} is {given!r:.200}: expected an existing folder.")
    return folder
