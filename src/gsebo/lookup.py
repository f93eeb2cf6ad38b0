"""Names to things, with the nearest valid name when a name is unknown."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

from gsebo.errors import InvalidInput, escaped

T = TypeVar("T")
_LONGEST = 100


@lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """Fold case, spaces and underscores, as PyG's resolvers do."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def lookup(kind: str, name: str, choices: Mapping[str, T]) -> T:
    """Return the choice called ``name``, whatever its case, ``-`` or ``_``.

    >>> lookup("method", "GSEBO", {"gsebo": 1})
    1
    """
    return choices[own_name(kind, name, choices)]


def own_name(kind: str, name: str, choices: Mapping[str, T]) -> str:
    """Return the name under which ``name`` is among the choices.

    >>> own_name("method", "GAUG-M", {"gaug_m": 1})
    'gaug_m'
    """
    if not isinstance(name, str):
        expected = f"expected one of: {', '.join(choices)}."
        raise InvalidInput(f"{name!r} given as {kind}; {expected}")
    by_name = {normalise(key): key for key in choices}
    if (wanted := normalise(name)) not in by_name:
        raise InvalidInput(unknown_name(kind, name, choices))
    return by_name[wanted]


def unknown_name(kind: str, name: str, choices: Mapping[str, T]) -> str:
    """Say which name was not found, what is nearest, and what there is."""
    by_name = {normalise(key): key for key in choices}
    nearest = get_close_matches(normalise(name[:_LONGEST]), by_name, n=1, cutoff=0.5)
    hint = f", did you mean {by_name[nearest[0]]!r}?" if nearest else "."
    shown = f"'{escaped(name, longest=_LONGEST)}'"
    return f"unknown {kind} {shown}{hint} Expected one of: {', '.join(choices)}."
