"""The structures by name: one line each."""

import copy
from inspect import signature

from gsebo.errors import InvalidInput
from gsebo.lookup import lookup
from gsebo.structure.amortised import AmortisedStrength
from gsebo.structure.base import Fixed, Structure
from gsebo.structure.edge_strength import EdgeStrength

STRUCTURES: dict[str, type[Structure]] = {
    "edge": EdgeStrength,
    "amortised": AmortisedStrength,
    "fixed": Fixed,
}


def make_structure(structure: str | type | Structure, **options: object) -> Structure:
    """Build a structure from a name or a class; an instance is copied.

    Args:
        structure: A name of ``STRUCTURES``, a class, or an instance, which has its own
            options.
        options: Arguments for those constructors that take them.
    """
    if isinstance(structure, Structure):
        return copy.deepcopy(structure)
    if isinstance(structure, str):
        structure = lookup("structure", structure, STRUCTURES)
    if not (isinstance(structure, type) and issubclass(structure, Structure)):
        raise InvalidInput(
            f"structure={structure!r} given; expected a name, a Structure class or an "
            "instance of one."
        )
    taken = signature(structure).parameters
    return structure(**{k: v for k, v in options.items() if k in taken})
