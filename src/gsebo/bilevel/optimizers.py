"""The inner optimisers by name."""

from collections.abc import Callable

from gsebo.bilevel.adam import adam
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.sgd import momentum, sgd
from gsebo.lookup import lookup

OPTIMIZERS: dict[str, Callable[[float], Optimizer]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adam": adam,
}


def make_optimizer(name: str, lr: float) -> Optimizer:
    """Build the optimiser called ``name`` with learning rate ``lr``.

    >>> make_optimizer("Adam", 0.01).init({}).count
    0
    """
    return lookup("optimizer", name, OPTIMIZERS)(lr)
