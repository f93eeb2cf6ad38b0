"""What no parameter of a kind takes, derived from how each is declared."""

import math
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
from msgspec import Meta

from gsebo.methods.parameters import NameIn, alternatives

_NAMES = ("nonsense", "cosine,cosine", 3, None, ["adam"], b"adam", "")
_FLAGS = (1, 0, "yes", None)
_OPTIONS = ({"no_such_option": 1}, "heads", 3, {3: 4}, ["heads"])
# Beyond what there can be of anything, and what Python refuses to write out.
_ABSURD = (2**31, 10**12, np.int64(2**62), 10**18, 2**63, 10**5000)
_NO_NUMBERS = ("a", None, True, False, [3], [0.1], math.nan, math.inf, -math.inf)
# No evidence at all is fine.
_MEANT = {"evidence": ("",)}


def bad_values(name: str, declared: Any) -> list[Any]:
    """Values that a parameter must refuse.

    Raises:
        LookupError: Nothing is known of such a declaration.
    """
    kinds = [kind for kind in alternatives(declared) if kind is not NoneType]
    allowed = _MEANT.get(name, ())
    if NoneType in alternatives(declared):
        allowed = (*allowed, None)
    bad = _refused_by_all(kinds[0])
    return [value for value in bad if value not in allowed]


def _refused_by_all(kind: Any) -> tuple[Any, ...]:
    """What neither this kind takes nor, for a text, any object instead of a name."""
    origin = get_origin(kind)
    if origin is Annotated and isinstance(get_args(kind)[1], NameIn):
        return _NAMES
    if origin is Annotated:
        return _outside(*get_args(kind))
    if origin is Literal or kind is str:
        return _NAMES
    if origin is dict:
        return _OPTIONS
    if kind is bool:
        return _FLAGS
    raise LookupError(f"which values are bad for {kind}?")


def _outside(number: type, limits: Meta) -> tuple[Any, ...]:
    if number is int:
        least, most = limits.ge, limits.le
        above = (most + 1, *(value for value in _ABSURD if value > most))
        return (least - 1, -1, 1.5, 3.0, *above, *_NO_NUMBERS)
    assert number is float
    low = [limits.gt] if limits.ge is None else [limits.ge - 0.1, limits.ge - 0.5]
    high = [] if limits.lt is None else [limits.lt, limits.lt + 0.5]
    if limits.le is not None:
        high = [limits.le + max(0.5, abs(limits.le))]
    return (*low, low[0] - 0.1, *high, 10**5000, *_NO_NUMBERS)
