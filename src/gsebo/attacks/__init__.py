"""Attacks: few edges that are changed so that a network goes wrong."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.attacks.base import Attack as Attack
    from gsebo.attacks.heuristics import DICE as DICE
    from gsebo.attacks.heuristics import RandomAttack as RandomAttack
    from gsebo.attacks.metattack import Metattack as Metattack
    from gsebo.attacks.nettack import Nettack as Nettack
    from gsebo.attacks.perturbation import Perturbation as Perturbation
    from gsebo.attacks.prbcd import GRBCD as GRBCD
    from gsebo.attacks.prbcd import PRBCD as PRBCD
    from gsebo.attacks.registry import ATTACKS as ATTACKS
    from gsebo.attacks.victim import Victim as Victim
    from gsebo.attacks.victim import victim_of as victim_of

make_lazy(__name__)
