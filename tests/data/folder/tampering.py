"""Graph folders that somebody changed, with or without making the checksums fit."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gsebo.data.datasets.registry import MANIFEST
from gsebo.data.formats.folder import GraphFolder


def dumped(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and make its own checksum fit."""
    content = json.loads((folder / MANIFEST).read_text())
    del content["sha256"]
    change(content)
    content["sha256"] = hashlib.sha256(dumped(content).encode()).hexdigest()
    (folder / MANIFEST).write_text(dumped(content))


def replace_array(folder: Path, name: str, array: np.ndarray) -> None:
    """Change an array and make the manifest fit."""
    path = folder / f"{name}.npy"
    path.unlink(missing_ok=True)
    np.save(path, array)
    entry = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    edit(folder, lambda content: content["arrays"].update({name: entry}))


def change_array(folder: Path, name: str, place: Any, value: Any) -> None:
    """Change one number of an array and make the manifest fit."""
    array = np.load(folder / f"{name}.npy")
    array[place] = value
    replace_array(folder, name, array)


def everything(folder: Path) -> tuple[Any, dict[str, bytes]]:
    """All that can be read of a folder, to be compared with another."""
    opened = GraphFolder.open(folder)
    data = opened.to_data()
    arrays = opened.arrays()
    parts = {
        key: value.numpy().tobytes() for key, value in data if hasattr(value, "numpy")
    }
    parts["indptr"], parts["source"] = arrays.indptr.tobytes(), arrays.source.tobytes()
    return opened.manifest, parts
