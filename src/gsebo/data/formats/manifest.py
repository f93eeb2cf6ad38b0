"""``graph.json``: what a graph folder holds, in words and numbers."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

import msgspec
import numpy as np
from msgspec import Meta

from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput, escaped
from gsebo.files import read_bytes
from gsebo.schema import Count, Record, Sha256, Size, Text, json_as, plain_as

MANIFEST = "graph.json"
FORMAT, VERSION = "gsebo-graph", 2
_WHAT = "the manifest of a graph folder"
_LONGEST = 64 * 2**20
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
class ArrayEntry(Record, frozen=True, kw_only=True):
    """One array of the folder, in the file ``NAME.npy``.

    Attributes:
        dtype: Type of its numbers as numpy writes it, little-endian.
        shape: Its shape.
        sha256: Checksum of the file.
    """

    dtype: Literal["<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|b1"]
    shape: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=2)]
    sha256: Sha256


@final
class Manifest(Record, frozen=True, kw_only=True):
    """What a graph folder says of itself.

    Attributes:
        num_nodes: Number of nodes.
        num_edges: Number of directed edges.
        num_features: Number of feature columns.
        num_classes: Number of classes that training and validation nodes may have, or
            any node where there are no such masks; ``None`` without labels.
        features: ``"dense"`` or ``"sparse"``.
        classes: Names of the classes, where labels were given as text.
        arrays: What the files hold, by the names of the arrays.
        facts: How the folder came about.
    """

    num_nodes: Count
    num_edges: Size
    num_features: Count
    num_classes: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None
    features: Literal["dense", "sparse"]
    classes: tuple[Text, ...] | None
    arrays: dict[Text, ArrayEntry]
    facts: dict[Text, Any]

    @property
    def dtype(self) -> str:
        """Type of the features, such as ``"float32"``."""
        stored = "x" if self.features == "dense" else "x_values"
        return str(np.dtype(self.arrays[stored].dtype))

    def text(self) -> str:
        """The content of ``graph.json``, which ends with the checksum of the rest."""
        content = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(self)}
        content["sha256"] = hashlib.sha256(_as_json(content).encode()).hexdigest()
        return _as_json(content)

    def with_checksums(self, found: Mapping[str, str]) -> "Manifest":
        """The same with other checksums of the arrays."""
        arrays = {
            name: msgspec.structs.replace(entry, sha256=found[name])
            for name, entry in self.arrays.items()
        }
        return msgspec.structs.replace(self, arrays=arrays)

    def check(self, where: Path) -> None:
        """Raise unless the arrays are those of a graph of this size.

        Args:
            where: The manifest's file, for the message.
        """
        shown = escaped(str(where))
        names = set(self.arrays)
        needed = _ALWAYS | _FEATURES[self.features]
        for name in sorted(needed - names):
            raise InvalidInput(f"{shown} names no array {name!r}: expected one.")
        for name in sorted(names - needed - _OPTIONAL):
            raise InvalidInput(
                f"{shown} names an array {escaped(name, longest=40)!r}: expected only "
                f"{', '.join(sorted(needed | _OPTIONAL))}."
            )
        for name, entry in self.arrays.items():
            self._check_array(name, entry, shown)
        self._check_classes(shown)

    def _check_array(self, name: str, entry: ArrayEntry, shown: str) -> None:
        if entry.dtype not in _DTYPES[name]:
            raise InvalidInput(
                f"{name} of {shown} is of type {entry.dtype!r}: expected "
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
                f"{name} of {shown} has shape {list(entry.shape)}: "
                f"expected {list(expected)}."
            )

    def _check_classes(self, shown: str) -> None:
        labelled = "y" in self.arrays
        if labelled != (self.num_classes is not None):
            held = "labels" if labelled else "no labels"
            raise InvalidInput(
                f"num_classes of {shown} is {self.num_classes} with {held}: expected a "
                "number with labels and null without."
            )
        named = self.num_classes if self.classes is None else len(self.classes)
        if named is not None and named < (self.num_classes or 0):
            raise InvalidInput(
                f"{shown} names {named} classes: expected one name for each of "
                f"{self.num_classes}."
            )


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``graph.json`` of a folder."""
    path = folder / MANIFEST
    return manifest_of(read_bytes(path, _WHAT, _LONGEST), path)


def manifest_of(text: bytes, path: Path) -> Manifest:
    """Decode and check a manifest.

    Args:
        text: Its content.
        path: The file, for the message.
    """
    shown = escaped(str(path))
    content = json_as(dict[str, Any], text, str(path), _WHAT)
    given, version = content.pop("format", None), content.pop("version", None)
    if given != FORMAT:
        raise InvalidInput(
            f"{shown} is of format {_short(given)}: expected {FORMAT!r}."
        )
    if version != VERSION:
        again = "; convert or generate the graph again" * (version == 1)
        raise InvalidInput(
            f"{shown} is of version {_short(version)}: expected {VERSION}, the only "
            f"one that this gsebo reads{again}."
        )
    content.pop("sha256", None)
    manifest = plain_as(Manifest, content, str(path), _WHAT)
    manifest.check(path)
    # The checksum is a part of the text: whatever was changed, one of them differs.
    if manifest.text().encode() != text:
        raise InvalidInput(
            f"{shown} is damaged: expected the text that gsebo wrote, which ends with "
            "its own sha256."
        )
    return manifest


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _short(value: object) -> str:
    return escaped(repr(value), longest=40)
