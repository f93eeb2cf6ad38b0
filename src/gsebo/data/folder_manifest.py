"""``graph.json``: what a graph folder holds, in words and numbers."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.files import read_json

MANIFEST = "graph.json"
FORMAT, VERSION = "gsebo-graph", 1
MASKS = ("train_mask", "val_mask", "test_mask")
_ALWAYS = {"indptr", "source"}
_FEATURES = {"dense": {"x"}, "sparse": {"x_indptr", "x_columns", "x_values"}}
_OPTIONAL = {"y", *MASKS, "node_id"}
_FLOATS = ("<f2", "<f4", "<f8")
_INTEGERS = ("<i4", "<i8")
_DTYPES = {
    "indptr": ("<i8",),
    "source": _INTEGERS,
    "x": _FLOATS,
    "x_indptr": ("<i8",),
    "x_columns": _INTEGERS,
    "x_values": _FLOATS,
    "y": ("|i1", "<i2", *_INTEGERS),
    **dict.fromkeys(MASKS, ("|b1",)),
    "node_id": _INTEGERS,
}


@final
class ArrayEntry(NamedTuple):
    """One array of the folder, in the file ``NAME.npy``.

    Attributes:
        dtype: Type of its numbers as numpy writes it, little-endian.
        shape: Its shape.
        sha256: Checksum of the file.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@final
@dataclass(frozen=True)
class Manifest:
    """What a graph folder says of itself.

    Attributes:
        num_nodes: Number of nodes.
        num_edges: Number of directed edges.
        num_features: Number of feature columns.
        num_classes: Largest label of a training or validation node plus one, of any
            node where there are no such masks; ``None`` without labels.
        features: ``"dense"`` or ``"sparse"``.
        arrays: The files, by the names of the arrays.
        classes: Names of the classes, where labels were given as text.
        facts: How the folder came about.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int | None
    features: str
    arrays: dict[str, ArrayEntry]
    classes: tuple[str, ...] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Type of the features, such as ``"float32"``."""
        stored = "x" if self.features == "dense" else "x_values"
        return str(np.dtype(self.arrays[stored].dtype))

    def text(self) -> str:
        """The content of ``graph.json``."""
        arrays = {
            name: {
                "file": f"{name}.npy",
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "sha256": entry.sha256,
            }
            for name, entry in self.arrays.items()
        }
        content = {
            "format": FORMAT,
            "version": VERSION,
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "features": self.features,
            "dtype": self.dtype,
            "classes": None if self.classes is None else list(self.classes),
            "arrays": arrays,
            "facts": self.facts,
        }
        return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def check(self, where: Path) -> None:
        """Raise unless the arrays are those of a graph of this size.

        Args:
            where: The manifest's file, for the message.
        """
        names = set(self.arrays)
        needed = _ALWAYS | _FEATURES[self.features]
        for name in sorted(needed - names):
            raise InvalidInput(f"{where} names no array {name!r}: expected one.")
        for name in sorted(names - needed - _OPTIONAL):
            raise InvalidInput(
                f"{where} names an array {name!r}: expected only "
                f"{', '.join(sorted(needed | _OPTIONAL))}."
            )
        for name, entry in self.arrays.items():
            self._check_array(name, entry, where)

    def _check_array(self, name: str, entry: ArrayEntry, where: Path) -> None:
        if entry.dtype not in _DTYPES[name]:
            raise InvalidInput(
                f"{name} of {where} is of type {entry.dtype!r}: expected "
                f"{' or '.join(_DTYPES[name])}."
            )
        shapes: dict[str, tuple[int, ...]] = {
            "indptr": (self.num_nodes + 1,),
            "source": (self.num_edges,),
            "x": (self.num_nodes, self.num_features),
            "x_indptr": (self.num_nodes + 1,),
            "x_columns": self.arrays.get("x_values", entry).shape[:1],
            "x_values": entry.shape[:1],
        }
        expected = shapes.get(name, (self.num_nodes,))
        if entry.shape != expected:
            raise InvalidInput(
                f"{name} of {where} has shape {list(entry.shape)}: "
                f"expected {list(expected)}."
            )


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``graph.json`` of a folder."""
    path = folder / MANIFEST
    content = read_json(path, "the manifest of a graph folder")
    if content.get("format") != FORMAT:
        raise InvalidInput(
            f"{path} is of format {content.get('format')!r:.40}: expected {FORMAT!r}."
        )
    if content.get("version") != VERSION:
        raise InvalidInput(
            f"{path} is of version {content.get('version')!r:.40}: expected {VERSION}, "
            "the only one that this gsebo reads."
        )
    try:
        manifest = _parsed(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path} is damaged ({type(error).__name__}: {error}): expected the "
            "manifest of a graph folder."
        ) from error
    manifest.check(path)
    if content.get("dtype") != manifest.dtype:
        raise InvalidInput(
            f"dtype of {path} is {content.get('dtype')!r:.40}: expected "
            f"{manifest.dtype!r}, as its features are."
        )
    return manifest


def _parsed(content: dict[str, Any]) -> Manifest:
    arrays = {}
    for name, entry in content["arrays"].items():
        # A name of a file from outside could lead anywhere.
        if entry["file"] != f"{name}.npy":
            raise ValueError(f"{name} is in {entry['file']!r:.40}, not in {name}.npy")
        shape = tuple(_size(side) for side in entry["shape"])
        arrays[str(name)] = ArrayEntry(str(entry["dtype"]), shape, entry["sha256"])
    features = content["features"]
    if features not in _FEATURES:
        raise ValueError(f"features are {features!r:.40}, not dense or sparse")
    classes = content.get("classes")
    facts = content.get("facts", {})
    if not isinstance(facts, dict):
        raise TypeError("facts are no object")
    num_classes = content["num_classes"]
    return Manifest(
        num_nodes=_size(content["num_nodes"]),
        num_edges=_size(content["num_edges"]),
        num_features=_size(content["num_features"]),
        num_classes=None if num_classes is None else _size(num_classes),
        features=features,
        arrays=arrays,
        classes=None if classes is None else tuple(map(str, classes)),
        facts=facts,
    )


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no size")
    return value
