"""The structures by name: one line each."""

import copy
from inspect import signature
from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput
from gsebo.names import Registry, lookup

if TYPE_CHECKING:
    from gsebo.structure.base import Structure

STRUCTURES: Registry[type["Structure"]] = Registry(
    {
        "edge": "gsebo.structure.edge_strength:EdgeStrength",
        "amortised": "gsebo.structure.amortised:AmortisedStrength",
        "fixed": "gsebo.structure.base:Fixed",
    }
)
"""What ``structure`` may be, by name."""


def make_structure(
    structure: "str | type | Structure", **options: object
) -> "Structure":
    """Build a structure from a name or a class, with options; an instance is copied.

    Args:
        structure: A name of ``STRUCTURES``, a class, or an instance.
        options: What the constructor takes.
    """
    # Not at the top: the names are to be read without torch.
    from gsebo.structure.base import Structure

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
