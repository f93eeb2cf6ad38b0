"""Read a graph folder once, in pieces, and say what is wrong with it."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import final

import numpy as np

from gsebo.data.folder_manifest import MASKS, Manifest
from gsebo.data.npy_stream import Array, chunks, read_header, sha256_of
from gsebo.errors import InvalidInput

_VALUES_AT_ONCE = 2**22


def verify_arrays(folder: Path, manifest: Manifest) -> None:
    """Raise `InvalidInput` for the first array that is damaged or inconsistent."""
    for name, entry in manifest.arrays.items():
        found = sha256_of(folder / f"{name}.npy")
        if found != entry.sha256:
            raise InvalidInput(
                f"{folder / name}.npy is damaged: its sha256 is {found[:12]}..., "
                f"expected {entry.sha256[:12]}..."
            )
    reader = _Reader(folder, manifest)
    starts = reader.starts("indptr", manifest.num_edges)
    _check_sources(reader, starts, manifest.num_nodes)
    if manifest.features == "sparse":
        stored = manifest.arrays["x_values"].shape[0]
        x_starts = reader.starts("x_indptr", stored)
        _check_columns(reader, x_starts, manifest.num_features)
        _check_finite(reader, "x_values")
    else:
        _check_finite(reader, "x")
    _check_labels(reader)
    _check_masks(reader)
    _check_names(reader)


@final
class _Reader:
    """Arrays of one folder, in pieces."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.names = set(manifest.arrays)
        self._row_shapes = {n: e.shape[1:] for n, e in manifest.arrays.items()}

    def pieces(self, name: str, rows: int | None = None) -> Iterator[tuple[int, Array]]:
        """Where each piece begins, and the piece."""
        path = self.folder / f"{name}.npy"
        if rows is None:
            width = max(int(np.prod(self._row_shapes[name])), 1)
            rows = max(_VALUES_AT_ONCE // width, 1)
        begin = 0
        for piece in chunks(path, read_header(path), rows):
            yield begin, piece
            begin += len(piece)

    def starts(self, name: str, end: int) -> Array:
        """Where rows begin, after checking that they rise from 0 to the end."""
        path = self.folder / f"{name}.npy"
        starts = np.concatenate([piece for _, piece in self.pieces(name)])
        if starts[0] != 0 or starts[-1] != end:
            raise InvalidInput(
                f"{path} runs from {starts[0]} to {starts[-1]}: expected 0 to {end}."
            )
        falls = np.flatnonzero(starts[1:] < starts[:-1])
        if len(falls):
            raise InvalidInput(
                f"{path} falls after position {falls[0]}: expected it to rise."
            )
        return starts

    def bad(self, name: str, position: int, value: object, expected: str) -> None:
        """Raise for one number of an array."""
        raise InvalidInput(
            f"{self.folder / name}.npy holds {value} at position {position}: "
            f"expected {expected}."
        )


def _check_sources(reader: _Reader, starts: Array, num_nodes: int) -> None:
    for begin, source, row, rises in _entries(reader, "source", starts):
        _check_range(reader, "source", begin, source, num_nodes)
        for place in np.flatnonzero(source == row)[:1]:
            reader.bad("source", begin + place, source[place], "no self-loop")
        for place in np.flatnonzero(~rises)[:1]:
            reader.bad(
                "source",
                begin + place,
                source[place],
                f"the sources of node {row[place]} in rising order, each once",
            )


def _check_columns(reader: _Reader, starts: Array, num_columns: int) -> None:
    for begin, column, row, rises in _entries(reader, "x_columns", starts):
        _check_range(reader, "x_columns", begin, column, num_columns)
        for place in np.flatnonzero(~rises)[:1]:
            expected = f"the columns of node {row[place]} in rising order, each once"
            reader.bad("x_columns", begin + place, column[place], expected)


def _entries(
    reader: _Reader, name: str, starts: Array
) -> Iterator[tuple[int, Array, Array, Array]]:
    """Pieces with the row of each entry and whether it is above the one before it."""
    last_value, last_row = -1, -1
    for begin, values in reader.pieces(name):
        end = begin + len(values)
        low, high = np.searchsorted(starts, [begin, end - 1], side="right") - 1
        counts = np.diff(starts[low : high + 2].clip(begin, end))
        rows = np.repeat(np.arange(low, high + 1), counts)
        before = np.concatenate([[last_value], values[:-1]])
        row_before = np.concatenate([[last_row], rows[:-1]])
        yield begin, values, rows, (values > before) | (rows != row_before)
        last_value, last_row = int(values[-1]), int(rows[-1])


def _check_range(
    reader: _Reader, name: str, begin: int, values: Array, end: int
) -> None:
    for place in np.flatnonzero((values < 0) | (values >= end))[:1]:
        reader.bad(name, begin + place, values[place], f"0 to {end - 1}")


def _check_finite(reader: _Reader, name: str) -> None:
    for begin, values in reader.pieces(name):
        finite = np.isfinite(values)
        if not finite.all():
            place = int(np.flatnonzero(~finite.reshape(len(values), -1).all(1))[0])
            row = np.atleast_1d(values[place])
            value = row[~np.isfinite(row)][0]
            reader.bad(name, begin + place, value, "finite numbers")


def _check_labels(reader: _Reader) -> None:
    if "y" not in reader.names:
        return
    for begin, labels in reader.pieces("y"):
        for place in np.flatnonzero(labels < -1)[:1]:
            expected = "classes from 0 and -1 where there is none"
            reader.bad("y", begin + place, labels[place], expected)


def _check_masks(reader: _Reader) -> None:
    for first, second in combinations([m for m in MASKS if m in reader.names], 2):
        pairs = zip(reader.pieces(first), reader.pieces(second), strict=True)
        for (begin, one), (_, other) in pairs:
            for place in np.flatnonzero(one & other)[:1]:
                expected = f"a node that is not in {second} too"
                reader.bad(first, begin + place, "true", expected)


def _check_names(reader: _Reader) -> None:
    if "node_id" not in reader.names:
        return
    names = np.concatenate([piece for _, piece in reader.pieces("node_id")])
    order = np.argsort(names, kind="stable")
    same = np.flatnonzero(names[order[1:]] == names[order[:-1]])
    if len(same):
        place = int(order[1:][same].min())
        reader.bad("node_id", place, names[place], "another name for each node")
