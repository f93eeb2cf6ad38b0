"""Levels of noise in the order in which tables and figures show them."""

from collections.abc import Iterable, Mapping

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.data.noise_kinds import INTER_CLASS

Levels = Mapping[str, tuple[NoiseSpec, ...]]


def levels_by_kind(noise: Iterable[NoiseSpec]) -> Levels:
    """Sort noise by its kind and level; the graph without any is level 0 of all kinds.

    >>> levels_by_kind([0, "removed:50", "removed:9", "labels:10"])
    {'removed': (0, 'removed:9', 'removed:50'), 'labels': (0, 'labels:10')}
    >>> levels_by_kind([1000, 0]), levels_by_kind([0])
    ({'inter_class': (0, 1000)}, {'inter_class': (0,)})
    """
    ascending = sorted(set(noise), key=lambda one: noise_parts(one)[1])
    kinds = {noise_parts(one)[0] for one in ascending if one} or {INTER_CLASS}
    return {
        kind: tuple(one for one in ascending if not one or noise_parts(one)[0] == kind)
        for kind in NOISE_KINDS
        if kind in kinds
    }


def measured_by(kind: str) -> str:
    """Say what the levels of a kind of noise are.

    >>> measured_by("inter_class"), measured_by("removed")
    ('the number of false edges', 'the share of edges removed')
    """
    measure = "share" if NOISE_KINDS[kind].in_percent else "number"
    return f"the {measure} of {NOISE_KINDS[kind].words}"
