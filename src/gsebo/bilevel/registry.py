"""The hypergradient engines and the inner optimisers by name."""

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput
from gsebo.names import Registry, lookup

if TYPE_CHECKING:
    from gsebo.bilevel.hypergradient import Hypergradient
    from gsebo.bilevel.optimizers import Optimizer

HYPERGRADIENTS: Registry[Callable[..., "Hypergradient"]] = Registry(
    {
        "reverse": "gsebo.bilevel.reverse:reverse",
        "unrolled": "gsebo.bilevel.hypergradient:Unrolled",
        "truncated": "gsebo.bilevel.reverse:truncated",
        "implicit": "gsebo.bilevel.implicit:Implicit",
        "first_order": "gsebo.bilevel.hypergradient:first_order",
    }
)
"""What ``hypergradient`` may be, by name: what builds the engine."""
OPTIMIZERS: Registry[Callable[[float], "Optimizer"]] = Registry(
    {
        "sgd": "gsebo.bilevel.optimizers:sgd",
        "momentum": "gsebo.bilevel.optimizers:momentum",
        "adam": "gsebo.bilevel.optimizers:adam",
    }
)
"""Optimisers by name: from a learning rate to what makes the steps."""


def make_hypergradient(
    hypergradient: "str | Hypergradient",
    *,
    direct_term: bool,
    horizon: int | None = None,
) -> "Hypergradient":
    """Build an engine by name; an engine is returned as it is, horizon and all.

    Args:
        hypergradient: A name of ``HYPERGRADIENTS``, or an engine.
        direct_term: Whether ∂F/∂Z at fixed weights belongs to the gradient.
        horizon: How many steps are looked back through, for ``"truncated"``.

    >>> make_hypergradient("truncated", direct_term=False).horizon
    5
    """
    # Not at the top: the names are to be read without torch.
    from gsebo.bilevel.hypergradient import Hypergradient

    if isinstance(hypergradient, Hypergradient):
        return hypergradient
    build = lookup("hypergradient", hypergradient, HYPERGRADIENTS)
    if horizon is None:
        return build(direct_term=direct_term)
    if "horizon" not in signature(build).parameters:
        raise InvalidInput(
            f"horizon={horizon!r} given to hypergradient {hypergradient!r}, which has "
            "none; expected 'reverse' or 'truncated'."
        )
    return build(direct_term=direct_term, horizon=horizon)


def make_optimizer(name: str, lr: float) -> "Optimizer":
    """Build the optimiser called ``name`` with learning rate ``lr``.

    Args:
        name: A name of ``OPTIMIZERS``.
        lr: Learning rate.

    >>> make_optimizer("Adam", 0.01).init({}).count
    0
    """
    return lookup("optimizer", name, OPTIMIZERS)(lr)
