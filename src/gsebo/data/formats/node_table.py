"""The node table: ids, labels, splits and features, from batches of rows to arrays."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.formats.table_ids import Faults, IdColumn, Ints
from gsebo.data.formats.table_rows import (
    ColumnKind,
    Kinds,
    Progress,
    RowBatch,
    TableFile,
    first_true,
)
from gsebo.data.validate import MASKS
from gsebo.errors import InvalidInput

Masks = dict[str, NDArray[np.bool_]]

LABELS = ("label", "y", "class")
"""What a column or an attribute with classes is called, unless it is said."""
_SPLIT_NAMES = {mask: mask.removesuffix("_mask") for mask in MASKS}
_MOST_LABELS = 2**20
# As people write them: Python would also take "1_000", and digits of any script.
_NUMBER = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


@final
class _Labels:
    """Collects the labels of one column; decides at the end what they are.

    If they are whole numbers they are the classes, and -1 is none. If they are text,
    classes are numbered in the order of the alphabet. An empty field is none.
    """

    def __init__(self, table: TableFile, name: str) -> None:
        self._table = table
        self._name = name
        self._code: dict[str, int] = {}
        # Of each label, in the order of the codes.
        self._first_row: list[int] = []
        self._parts: list[NDArray[np.int32]] = []

    def add(self, batch: RowBatch) -> None:
        """Take the labels of a batch."""
        texts, places = batch.categories(self._name)
        first = np.zeros(len(texts), np.int64)
        # Of several values for one place the last is kept: backwards, the first.
        first[places[::-1]] = np.arange(batch.rows)[::-1]
        codes = np.full(len(texts), -1, np.int32)
        # In the order of rows, or the first of two new labels would be any of them.
        for place in np.argsort(first, kind="stable").tolist():
            text = texts[place]
            if text and text not in self._code:
                self._code[text] = len(self._code)
                self._first_row.append(batch.first + int(first[place]))
            codes[place] = self._code.get(text, -1)
        self._parts.append(codes[places])
        if len(self._code) > _MOST_LABELS:
            raise InvalidInput(
                f"{self._name} of {self._table.path} holds more than {_MOST_LABELS} "
                "different labels: expected classes."
            )

    def classes(self) -> tuple[Ints, tuple[str, ...] | None]:
        """The class of each node, -1 for none, and the classes' names if any."""
        codes = np.concatenate(self._parts)
        values = [
            float(text) if _NUMBER.fullmatch(text) else None for text in self._code
        ]
        named = bool(values) and values[0] is None
        for text, value, row in zip(self._code, values, self._first_row, strict=True):
            expected = self._expected_instead_of(value, named, max(len(codes), 2) - 1)
            if expected:
                raise InvalidInput(
                    f"{self._table.unit} {row} of {self._table.path} holds "
                    f"{text!r:.40} as {self._name}: expected {expected}."
                )
        names = tuple(sorted(self._code)) if named else None
        place = {name: number for number, name in enumerate(names or ())}
        found = [place[text] if named else int(float(text)) for text in self._code]
        # The code -1 reads the last.
        classes = np.array([*found, -1], np.int64)
        return classes[codes], names

    def _expected_instead_of(
        self, value: float | None, named: bool, highest: int
    ) -> str | None:
        if (value is None) != named:
            usual = "text" if named else "a whole number"
            return f"{usual}, as in {self._table.unit} {self._first_row[0]}"
        # A number that is not finite is not whole either.
        if value is not None and not value.is_integer():
            return "a whole number or text"
        if value is not None and not -1 <= value <= highest:
            return f"a class from 0 to {highest} at most, or -1 for none"
        return None


@final
@dataclass(frozen=True)
class NodeColumns:
    """Which column of a node table is for what.

    Attributes:
        id: Names of the nodes, by which edges call them; ``id`` by default. Without
            such a column nodes are called by their number, from 0.
        label: Classes; ``label``, ``y`` or ``class`` by default.
        split: ``train``, ``val`` or ``test``; ``split`` by default.
        left_out: Columns that are not read.
        usual_labels: Whether a column is one of classes by its name alone.
    """

    id: str | None = None
    label: str | None = None
    split: str | None = None
    left_out: tuple[str, ...] = ()
    usual_labels: bool = True


@final
@dataclass(frozen=True)
class NodeTable:
    """What a node table said, but for the features, which went elsewhere already."""

    num_nodes: int
    # What nodes are called, where a column says that.
    ids: IdColumn | None
    # Classes, -1 for none, and their names, if labels are text.
    y: Ints | None
    classes: tuple[str, ...] | None
    masks: Masks
    # Names of the columns of features, and of those of no use.
    features: tuple[str, ...]
    left_out: tuple[str, ...]


class FeatureRows(Protocol):
    """What takes rows of features, a block at a time."""

    def append(self, rows: NDArray[np.float32]) -> None:
        """Take the next rows."""


def read_nodes(
    table: TableFile,
    columns: NodeColumns,
    new_features: Callable[[int], FeatureRows],
    progress: Progress,
) -> NodeTable:
    """Read a node table; features go straight to where so many columns are taken."""
    kinds, columns, mask_columns = _plan(table, columns)
    features = tuple(name for name, kind in kinds.items() if kind == ColumnKind.NUMBER)
    x = new_features(len(features)) if features else None
    labels = None if columns.label is None else _Labels(table, columns.label)
    ids = None if columns.id is None else IdColumn(table, columns.id)
    if ids is not None:
        kinds[ids.name] = ids.kind
    masks: dict[str, list[NDArray[np.bool_]]] = {}
    rows = 0
    for batch in table.batches(kinds, progress):
        rows += batch.rows
        faults: Faults = []
        block = _features(batch, features, faults)
        found = _masks(batch, columns.split, mask_columns, faults)
        if ids is not None:
            ids.add(batch, faults)
        batch.refuse_first(faults)
        if x is not None:
            x.append(block)
        if labels is not None:
            labels.add(batch)
        for name, part in found.items():
            masks.setdefault(name, []).append(part)
    y, classes = (None, None) if labels is None else labels.classes()
    return NodeTable(
        num_nodes=rows,
        ids=ids,
        y=y,
        classes=classes,
        masks={name: np.concatenate(parts) for name, parts in masks.items()},
        features=features,
        left_out=columns.left_out,
    )


def _plan(
    table: TableFile, columns: NodeColumns
) -> tuple[Kinds, NodeColumns, dict[str, str]]:
    """What each column is read as, which is for what, and the columns of the masks.

    Columns of no use are left out too. Features alone are read as numbers.
    """
    if not table.named:
        raise InvalidInput(
            f"line 1 of {table.path} holds only numbers: expected the names of the "
            "columns."
        )
    held = table.kinds()
    for name in (columns.id, columns.label, columns.split, *columns.left_out):
        if name is not None and name not in held:
            raise InvalidInput(
                f"{table.path} has no column {name!r}: expected one of "
                f"{', '.join(held)}."
            )
    chosen = {n: kind for n, kind in held.items() if n not in columns.left_out}

    def find(given: str | None, *usual: str) -> str | None:
        return given or next((name for name in usual if name in chosen), None)

    id_, split = find(columns.id, "id"), find(columns.split, "split")
    label = find(columns.label, *(LABELS if columns.usual_labels else ()))
    masks: dict[str, str] = {}
    if split is None:
        found = {mask: find(None, mask, short) for mask, short in _SPLIT_NAMES.items()}
        masks = {mask: name for mask, name in found.items() if name is not None}
    special = {id_, label, split, *masks.values()}
    kinds = {
        name: ColumnKind.NUMBER
        for name, kind in chosen.items()
        if name not in special
        and kind in (ColumnKind.INTEGER, ColumnKind.NUMBER, ColumnKind.TRUTH)
    }
    kinds |= {name: ColumnKind.INTEGER for name in (id_,) if name is not None}
    kinds |= {name: ColumnKind.TEXT for name in (label, split) if name is not None}
    kinds |= dict.fromkeys(masks.values(), ColumnKind.TRUTH)
    if not kinds:
        raise InvalidInput(
            f"{table.path} has no column of use: expected an id, a label, a split or "
            "numbers."
        )
    left_out = tuple(name for name in held if name not in kinds)
    return kinds, NodeColumns(id_, label, split, left_out), masks


def _features(
    batch: RowBatch, names: tuple[str, ...], faults: Faults
) -> NDArray[np.float32]:
    block = np.empty((batch.rows, len(names)), np.float32)
    for column, name in enumerate(names):
        block[:, column] = batch.numbers(name)
    bad = first_true(np.asarray(~np.isfinite(block).all(axis=1)))
    if bad is not None:
        column = int(np.argmin(np.isfinite(block[bad])))
        expected = "a finite number in single precision"
        fault = f"holds {block[bad, column]} as {names[column]}: expected {expected}"
        faults.append((bad, fault))
    return block


def _masks(
    batch: RowBatch, split: str | None, columns: dict[str, str], faults: Faults
) -> Masks:
    """The masks of a batch, by a split or columns of their own; no node is in two."""
    if split is not None:
        texts, places = batch.categories(split)
        known = ("", *_SPLIT_NAMES.values())
        bad = first_true(np.array([text not in known for text in texts])[places])
        if bad is not None:
            held = f"holds {texts[places[bad]]!r:.40} as {split}"
            faults.append((bad, f"{held}: expected train, val, test or nothing"))
        return {
            mask: np.array([text == short for text in texts])[places]
            for mask, short in _SPLIT_NAMES.items()
        }
    masks: Masks = {mask: batch.numbers(name) for mask, name in columns.items()}
    if masks:
        bad = first_true(np.count_nonzero(list(masks.values()), axis=0) > 1)
        if bad is not None:
            fault = "is in two of train, val and test: expected one or none"
            faults.append((bad, fault))
    return masks
