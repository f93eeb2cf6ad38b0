"""``graph.json``: what a graph folder holds, in words and numbers."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

import msgspec
import numpy as np
from msgspec import Meta

from gsebo.data.datasets.registry import MANIFEST
from gsebo.data.formats.edge_values import EDGE_VALUES
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput, escaped
from gsebo.files import (
    Count,
    Name,
    Record,
    Sha256,
    Size,
    Text,
    json_as,
    plain_as,
    read_bytes,
)

FORMAT, VERSION = "gsebo-graph", 2
_WHAT = "the manifest of a graph folder"
_LONGEST = 64 * 2**20
_ALWAYS = {"indptr", "source"}
_FEATURES = {"dense": {"x"}, "sparse": {"x_indptr", "x_columns", "x_values"}}
_OPTIONAL = {"y", *MASKS, "node_id", *EDGE_VALUES}
_FLOATS = ("<f2", "<f4", "<f8")
_INTEGERS = ("<i4", "<i8")
# Bytes of a text that names a node, all of the same width.
_TEXT = re.compile(r"\|S[1-9][0-9]{0,3}")
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
    **dict.fromkeys(EDGE_VALUES, ("<f4", "<f8")),
}


@final
class ArrayEntry(Record, frozen=True, kw_only=True):
    """One array of the folder, in the file ``NAME.npy`` with this checksum."""

    dtype: Name
    shape: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=2)]
    sha256: Sha256


@final
class Manifest(Record, frozen=True, kw_only=True):
    """What a graph folder says of itself."""

    num_nodes: Count
    # Directed ones.
    num_edges: Size
    num_features: Count
    # That training and validation nodes may have, or any node where there are no such
    # masks; none without labels.
    num_classes: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None
    features: Literal["dense", "sparse"]
    # Their names, where labels were given as text.
    classes: tuple[Text, ...] | None
    arrays: dict[Text, ArrayEntry]
    # How the folder came about.
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
        """Raise unless the arrays are those of a graph of this size."""
        names = set(self.arrays)
        needed = _ALWAYS | _FEATURES[self.features]
        for name in sorted(needed - names):
            raise InvalidInput(f"{where} names no array {name!r}: expected one.")
        for name in sorted(names - needed - _OPTIONAL):
            raise InvalidInput(
                f"{where} names an array {escaped(name, longest=40)!r}: expected only "
                f"{', '.join(sorted(needed | _OPTIONAL))}."
            )
        for name, entry in self.arrays.items():
            self._check_array(name, entry, where)
        labelled = "y" in self.arrays
        if labelled != (self.num_classes is not None):
            held = "labels" if labelled else "no labels"
            raise InvalidInput(
                f"num_classes of {where} is {self.num_classes} with {held}: expected a "
                "number with labels and null without."
            )
        if self.classes is not None and len(self.classes) < (self.num_classes or 0):
            raise InvalidInput(
                f"{where} names {len(self.classes)} classes: expected one name for "
                f"each of {self.num_classes}."
            )

    def _check_array(self, name: str, entry: ArrayEntry, where: Path) -> None:
        # Texts are bytes of a width of their own.
        is_text = name == "node_id" and _TEXT.fullmatch(entry.dtype)
        if not is_text and entry.dtype not in _DTYPES[name]:
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
            "edge_weight": (self.num_edges,),
            # Any number of columns, but at least one.
            "edge_attr": (self.num_edges, max((1, *entry.shape[1:]))),
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
    return manifest_of(read_bytes(path, _WHAT, _LONGEST), path)


def manifest_of(text: bytes, path: Path) -> Manifest:
    """Decode and check the manifest in a file."""
    content = json_as(dict[str, Any], text, str(path), _WHAT)
    given, version = content.pop("format", None), content.pop("version", None)
    if given != FORMAT:
        shown = escaped(repr(given), longest=40)
        raise InvalidInput(f"{path} is of format {shown}: expected {FORMAT!r}.")
    if version != VERSION:
        shown = escaped(repr(version), longest=40)
        again = "; convert or generate the graph again" * (version == 1)
        raise InvalidInput(
            f"{path} is of version {shown}: expected {VERSION}, the only one that this "
            f"gsebo reads{again}."
        )
    content.pop("sha256", None)
    manifest = plain_as(Manifest, content, str(path), _WHAT)
    manifest.check(path)
    # The checksum is a part of the text: whatever was changed, one of them differs.
    if manifest.text().encode() != text:
        raise InvalidInput(
            f"{path} is damaged: expected the text that gsebo wrote, which ends with "
            "its own sha256."
        )
    return manifest


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
