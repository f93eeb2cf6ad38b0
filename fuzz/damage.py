"""Ways to spoil bytes, trees of plain values, and arrays."""

import copy
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuzz.target import Draw

# Where sizes, kinds and signs end, and what somebody would try first.
_NUMBERS = [0, 1, 2, 3, 7, -1, -2, 10**6, 2**31 - 1, 2**31, 2**32, 10**12, 2**53, 2**62]
_NUMBERS += [2**63 - 1, 2**63, -(2**63), 2**64, 10**18, 10**30, -(10**30)]
NUMBERS = st.sampled_from(_NUMBERS) | st.integers(-3, 70)
_REALS = [0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-320, 1e30, 1e38, 1e39, 1e308, -1e308]
_REALS += [float("nan"), float("inf"), float("-inf")]
REALS = st.sampled_from(_REALS) | st.floats(allow_nan=True)
_ODD = ["", " ", "\x00", "\x1b[2J", "\n", "a\nb", "\u202e", "\ud800", "é", "e\u0301"]
_ODD += ["=1+1", "../../x", "/dev/zero", "nan", "1e999", "x" * 5000, "😀", "[red]x"]
TEXTS = st.sampled_from(_ODD) | st.text(max_size=8)
FLAT = st.none() | st.booleans() | NUMBERS | REALS | TEXTS


@st.composite
def _deep(draw: Any) -> Any:
    value = draw(FLAT)
    for _ in range(draw(st.sampled_from([1, 3, 10, 40, 150]))):
        value = [value] if draw(st.booleans()) else {"a": value}
    return value


JUNK = (
    FLAT
    | st.lists(FLAT, max_size=3)
    | st.dictionaries(st.text(max_size=3), FLAT, max_size=3)
    | _deep()
)
"""What no field expects."""


def bytes_damage(draw: Draw, content: bytes) -> bytes:
    """Spoil bytes in one to three ways."""
    for _ in range(draw(st.integers(1, 3))):
        content = _once(draw, content)
    return content


def flipped(draw: Draw, content: bytes) -> bytes:
    """Flip bits of one byte."""
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    bits = draw(st.integers(1, 255))
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


def _once(draw: Draw, content: bytes) -> bytes:
    if not content:
        return draw(st.binary(max_size=20))
    kinds = ["flip", "flip", "insert", "delete", "cut", "repeat", "splice", "fill"]
    kind = draw(st.sampled_from([*kinds, "number", "digits"]))
    if kind == "flip":
        return flipped(draw, content)
    begin = draw(st.integers(0, len(content) - 1))
    length = draw(st.sampled_from([1, 2, 4, 8, 64, 1000]))
    left, part, right = (
        content[:begin],
        content[begin : begin + length],
        content[begin + length :],
    )
    if kind == "insert":
        return left + draw(st.binary(min_size=1, max_size=9)) + part + right
    if kind == "delete":
        return left + right
    if kind == "cut":
        return left
    if kind == "repeat":
        return left + part * draw(st.sampled_from([2, 3, 1000])) + right
    if kind == "splice":
        other = draw(st.integers(0, len(content) - 1))
        return left + content[other : other + length] + right
    if kind == "fill":
        return left + bytes([draw(st.sampled_from([0, 255, 32, 10]))]) * length + right
    if kind == "number":
        value = draw(NUMBERS) % 2**64
        return left + value.to_bytes(8, "little") + content[begin + 8 :]
    place = next(
        (i for i in range(begin, len(content)) if 48 <= content[i] < 58), begin
    )
    return content[:place] + str(draw(NUMBERS)).encode() + content[place + 1 :]


# --- trees of plain values -----------------------------------------------------------


def tree_damage(draw: Draw, tree: Any) -> Any:
    """Spoil what JSON or TOML says, in one to three places."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        tree = _tree_once(draw, tree)
    return tree


def _tree_once(draw: Draw, tree: Any) -> Any:
    inside: Any = None
    key: Any = None
    here = tree
    while isinstance(here, dict | list) and here and draw(st.integers(0, 5)):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        inside, key = here, draw(st.sampled_from(keys))
        here = inside[key]
    if inside is None:
        return draw(JUNK) if draw(st.integers(0, 5)) == 0 else tree
    kind = draw(st.sampled_from(["value", "value", "value", "other", "out", "more"]))
    if kind == "value":
        inside[key] = _near(draw, here)
    elif kind == "other":
        others = list(inside.values()) if isinstance(inside, dict) else inside
        inside[key] = copy.deepcopy(draw(st.sampled_from(others)))
    elif kind == "out":
        del inside[key]
    elif isinstance(inside, dict):
        inside[draw(TEXTS)] = draw(JUNK)
    else:
        inside += [copy.deepcopy(here)] * draw(st.sampled_from([1, 2, 100]))
    return tree


def _near(draw: Draw, value: Any) -> Any:
    """Another value, often of the same type."""
    if not draw(st.booleans()):
        return draw(JUNK)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw(NUMBERS | st.integers(value - 2, value + 2))
    if isinstance(value, float):
        return draw(REALS)
    if isinstance(value, str):
        return draw(TEXTS | st.just(value.upper()) | st.just(value + value[-1:]))
    return draw(JUNK)


# --- arrays --------------------------------------------------------------------------

_DTYPES = ["<i8", "<i4", "<i2", "|u1", "<u8", "<f4", "<f8", "<f2", "|b1", ">i8", ">f4"]
_DTYPES += ["<c8", "<U4", "|S3", "<M8[s]"]


def array_damage(draw: Draw, array: NDArray[Any]) -> NDArray[Any]:
    """Spoil an array: numbers, type, or shape."""
    kind = draw(st.sampled_from(["values", "values", "values", "dtype", "shape"]))
    if kind == "values":
        return _other_values(draw, array)
    if kind == "dtype":
        kept = array if array.dtype.kind in "fiub" else np.zeros(array.shape)
        with np.errstate(all="ignore"):
            return kept.astype(draw(st.sampled_from(_DTYPES)))
    how = draw(st.sampled_from(["shorter", "longer", "flat", "deep", "empty", "point"]))
    if how == "empty" or not array.size:
        return np.atleast_1d(array)[:0]
    if how == "point":
        return array.reshape(-1)[0].reshape(())
    if how == "flat":
        return array.reshape(-1)
    if how == "deep":
        return array[None] if draw(st.booleans()) else array[..., None]
    axis = draw(st.integers(0, max(array.ndim - 1, 0)))
    if how == "longer" or not array.ndim:
        return np.concatenate([np.atleast_1d(array)] * 2, axis=axis)
    return np.take(array, range(max(array.shape[axis] - 1, 0)), axis=axis)


def _other_values(draw: Draw, array: NDArray[Any]) -> NDArray[Any]:
    changed = array.copy()
    flat = changed.reshape(-1)
    if not flat.size:
        return changed
    for _ in range(draw(st.sampled_from([1, 1, 2, 5]))):
        place = draw(st.integers(0, flat.size - 1))
        if changed.dtype.kind == "f":
            with np.errstate(all="ignore"):
                flat[place] = draw(REALS)
        elif changed.dtype.kind == "b":
            flat[place] = not flat[place]
        elif changed.dtype.kind in "iu":
            bounds = np.iinfo(changed.dtype)
            near = int(flat[place]) + draw(st.sampled_from([-1, 1, 2]))
            number = draw(st.just(near) | NUMBERS)
            flat[place] = min(max(number, bounds.min), bounds.max)
    return changed
