"""Names to things: imported when they are asked for, nearest ones where none is known.

torch alone takes longer to import than most commands take to run, and a list of names
needs none of it.
"""

import ast
import sys
from collections import UserDict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

from gsebo.errors import InvalidInput, escaped

T = TypeVar("T")


class _LazyPackage(ModuleType):
    """A package whose names are imported from their modules when first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return sorted(_places(self.__name__))
        if name in (places := _places(self.__name__)):
            setattr(self, name, value := imported(places[name]))
            return value
        if not name.startswith("_") and find_spec(f"{self.__name__}.{name}"):
            return import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # A module does not hide what is named like it, as a function often is.
        if isinstance(value, ModuleType) and name in _places(self.__name__):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(_places(self.__name__))


def make_lazy(package: str) -> None:
    """Let a package import its public names when they are asked for.

    Its ``__init__`` lists them as ``from MODULE import NAME as PUBLIC_NAME``; what is
    not to be imported with the package stands under ``if TYPE_CHECKING:``.
    """
    sys.modules[package].__class__ = _LazyPackage


def imported(place: Any) -> Any:
    """Import what is given as ``"MODULE:NAME"``, or give back the thing itself.

    >>> imported("math:floor")(2.5)
    2
    """
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Registry(UserDict[str, T]):
    """Things by name, each imported when it is asked for if it is ``"MODULE:NAME"``.

    >>> rounding = Registry({"down": "math:floor"})
    >>> rounding["up"] = "math:ceil"
    >>> list(rounding), rounding["up"](2.5)
    (['down', 'up'], 3)
    """

    data: dict[str, Any]

    def __init__(self, places: dict[str, str | T]) -> None:
        self.data = dict(places)

    def __getitem__(self, name: str) -> T:
        thing: T = imported(self.data[name])
        return thing

    def __setitem__(self, name: str, place: str | T) -> None:
        self.data[name] = place

    def summary(self, name: str) -> str:
        """First line of a thing's docstring, read from its source."""
        place = self.data[name]
        text = place.__doc__
        if isinstance(place, str):
            text = ast.get_docstring(definition(*place.split(":")))
        return (text or "").strip().partition("\n")[0]


@cache
def source_of(module: str) -> ast.Module:
    """The source of a module, parsed; the module itself is not imported."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {module!r}", name=module)
    with open(spec.origin, "rb") as file:
        return ast.parse(file.read())


def definition(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The source of a class or function of a module."""
    for line in source_of(module).body:
        if isinstance(line, ast.ClassDef | ast.FunctionDef) and line.name == name:
            return line
    raise AttributeError(f"module {module!r} defines no {name!r}", name=name)


def imports_in(body: list[ast.stmt]) -> dict[str, str]:
    """Where each name comes from that is imported in some lines of source."""
    return {
        alias.asname or alias.name: f"{line.module}:{alias.name}"
        for line in body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


@cache
def _places(package: str) -> dict[str, str]:
    """Module and name of everything that a package imports ``as`` something."""
    return {
        alias.asname: f"{line.module}:{alias.name}"
        for line in ast.walk(source_of(package))
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.asname
    }


_LONGEST = 100
# A sentence stays one that is read.
_LONGEST_LIST = 180


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
        raise InvalidInput(f"{name!r} given as {kind}; {expected}", about=kind)
    by_name = {normalise(key): key for key in choices}
    if (wanted := normalise(name)) not in by_name:
        raise InvalidInput(unknown_name(kind, name, choices), about=kind)
    return by_name[wanted]


def names_among(parameter: str, text: str, choices: Mapping[str, T]) -> tuple[str, ...]:
    """Read different names, separated by commas, that are all among the choices.

    >>> names_among("evidence", "cosine, common", {"common": 1, "cosine": 2})
    ('cosine', 'common')
    """
    # What is not text is no name, whatever it looks like.
    given = text.split(",") if isinstance(text, str) else [repr(text)]
    chosen = tuple(name.strip() for name in given if name.strip())
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(choices):
        raise InvalidInput(
            f"{parameter}={text!r} given; expected 'all' or some of: "
            f"{', '.join(choices)}, separated by commas."
        )
    return chosen


def unknown_name(kind: str, name: str, choices: Mapping[str, T]) -> str:
    """Say which name was not found, what is nearest, and what there is."""
    by_name = {normalise(key): key for key in choices}
    nearest = get_close_matches(normalise(name[:_LONGEST]), by_name, n=1, cutoff=0.5)
    hint = f", did you mean {by_name[nearest[0]]!r}?" if nearest else "."
    shown = f"'{escaped(name, longest=_LONGEST)}'"
    return f"unknown {kind} {shown}{hint} Expected one of: {_listed(choices)}."


def _listed(names: Iterable[str]) -> str:
    """Names in a row; of many the first, and where the others are.

    >>> _listed(["gcn", "gat"])
    'gcn, gat'
    """
    every = list(names)
    shown = every[:]
    while len(", ".join(shown)) > _LONGEST_LIST:
        shown.pop()
    if len(shown) == len(every):
        return ", ".join(every)
    others = len(every) - len(shown)
    return f"{', '.join(shown)} and {others} others that `gsebo list` names"
