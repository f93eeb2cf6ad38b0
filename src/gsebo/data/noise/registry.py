"""The kinds of noise by name, and how much of each."""

import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput, escaped
from gsebo.names import imported, own_name

if TYPE_CHECKING:
    from gsebo.graph.graph import Graph

NoiseSpec = int | str
"""A number of inter-class edges, or ``KIND:LEVEL``."""


@dataclass(frozen=True)
class NoiseKind:
    """One way to disturb a graph.

    Attributes:
        place: The function of graph, level and seed, or ``"MODULE:NAME"`` of it.
        words: What there is so much of.
        in_percent: False where levels are numbers of edges that are appended.
        keeps_types: Whether what it makes of a graph with several types of nodes or
            relations is one too.
    """

    place: str | Callable[["Graph", int, int], "Graph"]
    words: str
    in_percent: bool = True
    keeps_types: bool = True

    def apply(self, data: "Graph", level: int, seed: int) -> "Graph":
        """Return a disturbed copy of a graph."""
        disturbed: Graph = imported(self.place)(data, level, seed)
        return disturbed


INTER_CLASS = "inter_class"
LABELS = "labels"
FALSE_TYPED = "false_typed"
_FILE = "gsebo.data.noise.kinds"
NOISE_KINDS = {
    INTER_CLASS: NoiseKind(
        f"{_FILE}:add_inter_class_edges", "false edges", in_percent=False
    ),
    "random": NoiseKind(f"{_FILE}:add_random_edges", "random edges", in_percent=False),
    FALSE_TYPED: NoiseKind(
        "gsebo.data.noise.typed:add_false_typed_edges", "false edges of each relation"
    ),
    "removed": NoiseKind(f"{_FILE}:remove_edges", "edges removed"),
    "features": NoiseKind(f"{_FILE}:shuffle_features", "features shuffled"),
    LABELS: NoiseKind(f"{_FILE}:replace_labels", "labels replaced"),
    # Somebody who fits a network first: by name alone, for this room knows none.
    "prbcd": NoiseKind(
        "gsebo.experiments.attacked:attacked_by_prbcd",
        "edges changed by PRBCD",
        keeps_types=False,
    ),
}
"""Kinds of noise by name."""

_LEVEL = re.compile(r"[0-9]{1,15}")


def apply_noise(data: "Graph", noise: NoiseSpec, seed: int = 0) -> "Graph":
    """Return a copy of a graph with noise; the same for the same seed.

    ====================  ===========================================================
    noise                 what it does
    ====================  ===========================================================
    ``1000``              :func:`add_inter_class_edges`, as ``"inter_class:1000"``
    ``"random:1000"``     :func:`add_random_edges`
    ``"false_typed:30"``  :func:`add_false_typed_edges`, 30 % of each relation's edges
    ``"removed:30"``      :func:`remove_edges`, 30 % of them
    ``"features:30"``     :func:`shuffle_features`, 30 % of the entries of each column
    ``"labels:30"``       :func:`replace_labels`, 30 % of those that are learned from
    ``"prbcd:30"``        :func:`attacked_by_prbcd`, 30 % of the edges as the budget
    ====================  ===========================================================

    Those that add edges refuse a graph with several types of nodes or relations, but
    for ``false_typed``, which adds edges of the relations that there are.

    Args:
        data: Any graph that ``fit`` takes; it is not changed.
        noise: Which noise and how much, as in the table.
        seed: Draws what is disturbed.

    Raises:
        InvalidInput: There is no such noise, or the graph is not made for it.
    """
    kind, level = noise_parts(noise)
    given, data = data, imported("gsebo.graph.graph:as_graph")(data)
    imported("gsebo.data.validate:require_graph")(data)
    if level and not NOISE_KINDS[kind].keeps_types:
        imported("gsebo.data.relations:refuse_types")(
            data,
            "the graph",
            f"{kind} knows one of each",
            f"graph.without_types(), or {FALSE_TYPED}:PERCENT",
        )
    noisy = NOISE_KINDS[kind].apply(data, level, seed) if level else copy(data)
    shown: Graph = imported("gsebo.graph.graph:given_back")(noisy, given)
    return shown


def noise_spec(given: object, name: str = "noise") -> NoiseSpec:
    """Check what a user gave, called ``name`` in a message, and return its one form.

    Args:
        given: What a user wrote, of any type.
        name: What the parameter is called in a message.

    >>> noise_spec("Removed:30"), noise_spec("inter_class:7"), noise_spec("labels:0")
    ('removed:30', 7, 0)
    """
    try:
        shown = escaped(str(given), longest=80)
    except ValueError:
        # Python does not write out integers of thousands of digits.
        shown, given = "of thousands of digits", None
    text = str(given).strip() if type(given) in (int, str) else ""
    kind, colon, level = text.rpartition(":")
    kind = own_name(name, kind, NOISE_KINDS) if colon else INTER_CLASS
    if not _LEVEL.fullmatch(level):
        raise InvalidInput(
            f"{name} {shown} given; expected a number of edges between classes, or "
            f"KIND:LEVEL with one of {', '.join(NOISE_KINDS)}, such as removed:30."
        )
    if NOISE_KINDS[kind].in_percent and int(level) > 100:
        raise InvalidInput(f"{name} {shown} given; expected 0 to 100 percent.")
    # An integer is what stored trials have, and nothing of anything is the same graph.
    whole = kind == INTER_CLASS or int(level) == 0
    return int(level) if whole else f"{kind}:{int(level)}"


def noise_parts(noise: NoiseSpec) -> tuple[str, int]:
    """Kind and level.

    Args:
        noise: A number of false edges, or ``"KIND:LEVEL"``.

    >>> noise_parts(5), noise_parts("removed:30")
    (('inter_class', 5), ('removed', 30))
    """
    spec = noise_spec(noise)
    if isinstance(spec, int):
        return INTER_CLASS, spec
    kind, _, level = spec.partition(":")
    return kind, int(level)


def noise_in_words(noise: NoiseSpec) -> str:
    """Say how much of what.

    Args:
        noise: A number of false edges, or ``"KIND:LEVEL"``.

    >>> noise_in_words(5), noise_in_words("removed:30")
    ('5 false edges', '30 % of edges removed')
    """
    kind, level = noise_parts(noise)
    of = "% of " if NOISE_KINDS[kind].in_percent else ""
    return f"{level} {of}{NOISE_KINDS[kind].words}"


def level_in_words(noise: NoiseSpec) -> str:
    """Say how much; what is no noise at all is 0 of every kind.

    Args:
        noise: A number of false edges, or ``"KIND:LEVEL"``.

    >>> level_in_words(0), level_in_words("random:500"), level_in_words("removed:30")
    ('0', '500', '30 %')
    """
    kind, level = noise_parts(noise)
    return f"{level} %" if level and NOISE_KINDS[kind].in_percent else str(level)


def edges_appended(noise: NoiseSpec) -> int:
    """How many pairs of nodes were joined, both ways, at the end of the edges.

    Args:
        noise: A number of false edges, or ``"KIND:LEVEL"``.

    >>> edges_appended("random:500"), edges_appended("removed:30")
    (500, 0)
    """
    kind, level = noise_parts(noise)
    return 0 if NOISE_KINDS[kind].in_percent else level
