"""The attacks by name, one line each, and names of the nodes that are attacked."""

from typing import TYPE_CHECKING

from gsebo.names import Registry

if TYPE_CHECKING:
    from gsebo.attacks.base import Attack

ATTACKS: "Registry[type[Attack]]" = Registry(
    {
        "random": "gsebo.attacks.heuristics:RandomAttack",
        "dice": "gsebo.attacks.heuristics:DICE",
        "prbcd": "gsebo.attacks.prbcd:PRBCD",
        "grbcd": "gsebo.attacks.prbcd:GRBCD",
        "nettack": "gsebo.attacks.nettack:Nettack",
        "metattack": "gsebo.attacks.metattack:Metattack",
    }
)
"""Attacks by name, as ``gsebo attack --kind`` takes them."""

NODE_SETS = ("test", "val", "train", "unlabelled", "all")
"""Nodes that go by a name; those without a known label are unlabelled."""
