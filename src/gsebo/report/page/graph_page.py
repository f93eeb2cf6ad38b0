"""One page about one graph: its edges in order, their neighborhoods, what to act on."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from gsebo.errors import InvalidInput
from gsebo.report.page.render import page_file, render

if TYPE_CHECKING:
    import pandas

# What a browser can hold and scroll; the most suspicious come first.
_MOST_ROWS = 250_000
_ROWS_ON_PAPER = 50
_LONGEST_ON_PAPER = 120
_MOST_STEPS = 2_000
# Of numbers in the page and in what it writes; a float32 holds seven.
_DIGITS = 6
_ALIGNMENT = 8
_LARGEST_WHOLE = 2**24

_STYLES = ("colours", "page", "graph/page", "graph/table", "graph/panel", "graph/media")
_SCRIPTS = ("data", "charts", "picture", "rows", "downloads", "page")
_LIBRARY = "vendor/cytoscape.min.js"
# What the library adds to any page that it draws in.
_LIBRARY_STYLE = ".__________cytoscape_container { position: relative; }"
_MARK_SCRIPT = 'document.documentElement.classList.add("script");'

_CURVES = ("step", "train_loss", "val_loss", "val_accuracy")
_ENDS = ("source", "target")
_MEANINGS = {
    "score": "what the list is ordered by: the higher, the more suspicious",
    "probability": "how likely the edge is wrong, calibrated on this graph",
    "cosine": "how alike the features of both ends are, from 0 to 1 (alike)",
    "agreement": "how likely both ends are of one class, by the predictions at both",
    "features_agreement": "the same by predictions from features alone, without edges",
    "common_neighbors": "how many nodes both ends are joined to",
    "learned_weight": "how much the edge counts in training: 1 is neutral, 0 nothing",
    "edge_weight": "the weight that the graph itself gives the edge",
    "source_degree": "how many edges the source has",
    "target_degree": "how many edges the target has",
    "degree": "how many edges the ends have",
    "strength": "how much the edge counts in the trained network",
    "start": "how much it counted before anything was learned",
    "ratio": "strength after training divided by the strength at the start",
    "source_class": "class of the source, known or predicted",
    "target_class": "class of the target, known or predicted",
    "reason": "why it stands where it does",
}
# Of pairs that are not joined.
_MEANINGS_OF_PAIRS = {
    "score": "what the list is ordered by: the higher, the more an edge is missed",
    "probability": "how likely the two should be joined",
}


@final
@dataclass(frozen=True, eq=False)
class GraphPage:
    """What a page says of a graph.

    Attributes:
        title: What it is about.
        sentences: The summary, most important first.
        edges: One row for each edge, most suspicious first: ``source`` and ``target``
            (the users' ids), and where known ``score``, ``probability`` (that it is
            wrong), evidence of any name, ``source_class``, ``target_class``,
            ``reason``.
        ends: Numbers of the nodes at both ends of each row, int64 ``[2, rows]``.
        nodes: One row for each node, in the order of their numbers: ``id``, and where
            known ``label``, ``predicted``, ``confidence``.
        expected: Of the ``first`` edges the expected share that is wrong:
            ``precision``, between ``low`` and ``high``.
        missing: Pairs that should be joined, as ``edges``.
        missing_ends: Their ends.
        history: One record for each step of the training, as ``StepRecord``.
        facts: Anything else, by name; shown small.
        directed: Whether an edge leads from its source to its target only.
    """

    title: str
    sentences: tuple[str, ...]
    edges: pandas.DataFrame
    ends: NDArray[np.int64]
    nodes: pandas.DataFrame
    expected: pandas.DataFrame | None = None
    missing: pandas.DataFrame | None = None
    missing_ends: NDArray[np.int64] | None = None
    history: Sequence[Any] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    directed: bool = False


def graph_page(content: GraphPage) -> str:
    """The page, which needs no other file and no network.

    The same content always gives the same page, to the byte.

    Raises:
        InvalidInput: Rows and ends do not fit each other, or the nodes.
    """
    packed = _Packed()
    tables = [_table(content, packed, "edges", content.edges, content.ends)]
    if content.missing is not None and content.missing_ends is not None:
        pairs = content.missing, content.missing_ends
        tables.append(_table(content, packed, "missing", *pairs))
    about = {
        "directed": content.directed,
        "nodes": _nodes(content, packed),
        "tables": tables,
        "history": _history(content.history),
    }
    library = page_file(_LIBRARY)
    html = render(
        "graph/page.html",
        styles=_STYLES,
        scripts=[f"graph/{name}" for name in _SCRIPTS],
        other_styles=[_LIBRARY_STYLE],
        other_scripts=[_MARK_SCRIPT, library],
        mark_script=Markup(_MARK_SCRIPT),
        library=Markup(library),
        about=_in_script(about),
        numbers=Markup(packed.text()),
        page=content,
        paper=[
            (table["title"], _on_paper(frame))
            for table, frame in zip(
                tables, (content.edges, content.missing), strict=False
            )
        ],
    )
    # A name of bytes that are no text could not be written.
    return html.encode("utf-8", "replace").decode("utf-8")


@final
class _Packed:
    """Arrays and texts one after the other, which the page unpacks as it needs them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def numbers(self, values: Any) -> dict[str, Any]:
        """Round numbers to what is shown; what is not known is NaN."""
        array = np.asarray(values, np.float64)
        if not len(array) or _are_small(array):
            array = _rounded(array).astype("<f4")
            return self._add("Float32", array.tobytes(), len(array))
        return self._add("Float64", array.astype("<f8").tobytes(), len(array))

    def whole(self, values: Any) -> dict[str, Any]:
        array = np.asarray(values).astype("<i4")
        return self._add("Int32", array.tobytes(), array.size)

    def texts(self, values: Sequence[str]) -> dict[str, Any]:
        return self._add("Text", json.dumps(values).encode("ascii"), len(values))

    def coded(self, values: Iterable[Any]) -> dict[str, Any]:
        """Each text once, and which one each row has, -1 for none."""
        codes, names = _codes(values)
        return {"codes": self.whole(codes), "texts": self.texts(names)}

    def text(self) -> str:
        """All of them, compressed, in letters that mean nothing to a browser."""
        compressed = gzip.compress(b"".join(self._parts), 6, mtime=0)
        return base64.b64encode(compressed).decode("ascii")

    def _add(self, kind: str, content: bytes, length: int) -> dict[str, Any]:
        place = {
            "type": kind,
            "at": self._size,
            "bytes": len(content),
            "length": length,
        }
        padded = content + b"\0" * (-len(content) % _ALIGNMENT)
        self._parts.append(padded)
        self._size += len(padded)
        return place


def _are_small(values: NDArray[np.float64]) -> bool:
    """Whether a float32 holds them all to the digits that are shown."""
    finite = np.abs(values[np.isfinite(values)])
    return not len(finite) or float(finite.max()) < _LARGEST_WHOLE


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of six digits.

    >>> _rounded(np.array([0.123456789, 123456.789, 0.0])).tolist()
    [0.123457, 123457.0, 0.0]
    """
    known = np.isfinite(values) & (values != 0)
    size = np.zeros(len(values))
    size[known] = np.floor(np.log10(np.abs(values[known])))
    # Smaller numbers than these are as good as zero.
    factor = 10.0 ** np.clip(_DIGITS - 1 - size, 0, 30)
    rounded: NDArray[np.float64] = np.round(values * factor) / factor
    return rounded


def _codes(values: Iterable[Any]) -> tuple[list[int], list[str]]:
    """Number texts by their first appearance.

    >>> _codes(["b", None, "a", "b"])
    ([0, -1, 1, 0], ['b', 'a'])
    """
    numbers: dict[str, int] = {}
    codes = [
        -1 if _is_unknown(value) else numbers.setdefault(str(value), len(numbers))
        for value in values
    ]
    return codes, list(numbers)


def _is_unknown(value: Any) -> bool:
    """Whether it is ``None``, NaN or what pandas calls ``NA``."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _table(
    content: GraphPage,
    packed: _Packed,
    key: str,
    frame: pandas.DataFrame,
    ends: NDArray[np.int64],
) -> dict[str, Any]:
    """What the page holds of a table: its columns, and the nodes of its rows."""
    nodes = len(content.nodes)
    if ends.shape != (2, len(frame)):
        raise InvalidInput(
            f"ends of shape {list(ends.shape)} given; expected [2, {len(frame)}], "
            "one for each row."
        )
    if ends.size and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise InvalidInput(
            f"ends from {ends.min()} to {ends.max()} given; expected numbers of "
            f"{nodes} nodes."
        )
    shown, shown_ends = frame.iloc[:_MOST_ROWS], ends[:, :_MOST_ROWS]
    names = [name for name in frame.columns if name not in _ENDS]
    is_edges = key == "edges"
    expected = content.expected if is_edges else None
    meanings = _MEANINGS if is_edges else _MEANINGS | _MEANINGS_OF_PAIRS
    return {
        "key": key,
        "title": "Edges" if is_edges else "Missing edges",
        "total": len(frame),
        "ends": [packed.whole(end) for end in shown_ends],
        "columns": [
            {**_column(str(name), shown[name], packed), "meaning": meanings.get(name)}
            for name in names
        ],
        "expected": None if expected is None else _expected(expected),
    }


def _column(name: str, values: pandas.Series, packed: _Packed) -> dict[str, Any]:
    about = {"name": name, "title": name.replace("_", " ")}
    if getattr(values.dtype, "kind", "O") in "biuf":
        # Types of pandas that know what is not there have to be told what it becomes.
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        kind = "share" if name == "probability" else "number"
        return {**about, "kind": kind, "values": packed.numbers(numbers)}
    return {**about, "kind": "text", **packed.coded(values.tolist())}


def _expected(frame: pandas.DataFrame) -> dict[str, list[float | None]]:
    """The expected precision, in order; a limit that is not known is left out."""
    ordered = frame.sort_values("first")
    return {
        name: [
            None if _is_unknown(value) else round(float(value), _DIGITS)
            for value in ordered[name].tolist()
        ]
        for name in ("first", "precision", "low", "high")
        if name in ordered
    }


def _nodes(content: GraphPage, packed: _Packed) -> dict[str, Any]:
    """Ids and classes of the nodes; where a class is known it is that."""
    nodes = content.nodes
    label = nodes["label"].tolist() if "label" in nodes else [None] * len(nodes)
    if "predicted" in nodes:
        predicted = nodes["predicted"].tolist()
    else:
        predicted = _classes_at_ends(content)
    codes, classes = _codes([*label, *predicted])
    known, guessed = codes[: len(nodes)], codes[len(nodes) :]
    order = sorted(range(len(classes)), key=lambda one: _natural(classes[one]))
    place = np.empty(len(classes) + 1, np.int64)
    # What is not known has the code -1, and stays so.
    place[order], place[-1] = np.arange(len(classes)), -1
    about = {
        "count": len(nodes),
        "id": packed.texts([str(one) for one in nodes["id"].tolist()]),
        "degree": packed.whole(np.bincount(content.ends.ravel(), minlength=len(nodes))),
        "classes": [classes[one] for one in order],
        "label": packed.whole(place[known]),
        "predicted": packed.whole(place[guessed]),
    }
    if "confidence" in nodes:
        about["confidence"] = packed.numbers(nodes["confidence"].to_numpy(np.float64))
    return about


def _classes_at_ends(content: GraphPage) -> list[Any]:
    """Classes that only the table of the edges says."""
    found: list[Any] = [None] * len(content.nodes)
    for end, name in zip(content.ends, _ENDS, strict=True):
        if f"{name}_class" in content.edges:
            classes = content.edges[f"{name}_class"].tolist()
            for node, one in zip(end.tolist(), classes, strict=True):
                found[node] = one
    return found


def _natural(name: str) -> tuple[float, str]:
    """Order numbers as numbers, before all other names."""
    return (float(name) if name.isdecimal() else math.inf, name)


def _history(records: Sequence[Any]) -> dict[str, list[float | None]]:
    """Curves of the training, of so many steps as can be told apart."""
    chosen = records[:: -(-len(records) // _MOST_STEPS) or 1]

    def value(record: Any, name: str) -> float | None:
        if isinstance(record, Mapping):
            found = record.get(name)
        else:
            found = getattr(record, name, None)
        if found is None or not math.isfinite(found):
            return None
        return float(f"{found:.{_DIGITS}g}")

    curves = {name: [value(record, name) for record in chosen] for name in _CURVES}
    return {
        name: curve
        for name, curve in curves.items()
        if any(one is not None for one in curve)
    }


def _in_script(content: object) -> Markup:
    """JSON that can stand in a script: nothing in it ends that."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _on_paper(frame: pandas.DataFrame | None) -> dict[str, Any]:
    """The first rows as they are printed, and as they are read without scripts."""
    assert frame is not None
    wanted = (*_ENDS, "probability", "score", "reason")
    names = [name for name in wanted if name in frame]
    first = frame[names].head(_ROWS_ON_PAPER)
    rows = zip(*(first[name].tolist() for name in names), strict=True)
    return {
        "names": names,
        "rows": [[_cell(value) for value in row] for row in rows],
        "total": len(frame),
    }


def _cell(value: Any) -> str:
    if _is_unknown(value):
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    text = str(value)
    if len(text) > _LONGEST_ON_PAPER:
        return f"{text[:_LONGEST_ON_PAPER]}…"
    return text
