"""Attacks: few edges that are changed so that a network goes wrong."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.attacks.base import Attack as Attack
    from gsebo.attacks.perturbation import Perturbation as Perturbation
    from gsebo.attacks.victim import Victim as Victim
    from gsebo.attacks.victim import victim_of as victim_of

make_lazy(__name__)
