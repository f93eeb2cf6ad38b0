"""The hypergradient engines by name."""

from collections.abc import Callable
from inspect import signature

from gsebo.bilevel.first_order import FirstOrder
from gsebo.bilevel.hypergradient import Hypergradient
from gsebo.bilevel.implicit import Implicit
from gsebo.bilevel.reverse import Reverse
from gsebo.bilevel.unrolled import Unrolled
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup


def reverse(direct_term: bool = True, horizon: int | None = None) -> Reverse:
    """Store the iterates and replay the steps; keep the graphs of those that fit."""
    return Reverse(direct_term=direct_term, horizon=horizon, kept_graphs=None)


def truncated(direct_term: bool = True, horizon: int = 5) -> Reverse:
    """Truncated backpropagation (Shaban et al., 2019): reverse with a horizon."""
    return reverse(direct_term=direct_term, horizon=horizon)


def first_order(direct_term: bool = True) -> FirstOrder:
    """The direct term, whatever ``direct_term`` says: it is all there is."""
    return FirstOrder()


HYPERGRADIENTS: dict[str, Callable[..., Hypergradient]] = {
    "reverse": reverse,
    "unrolled": Unrolled,
    "truncated": truncated,
    "implicit": Implicit,
    "first_order": first_order,
}


def make_hypergradient(
    hypergradient: str | Hypergradient,
    *,
    direct_term: bool,
    horizon: int | None = None,
) -> Hypergradient:
    """Build an engine by name; an engine is returned as it is.

    Args:
        hypergradient: a name of ``HYPERGRADIENTS``, or an engine, which then has its
            own direct term and horizon.
        direct_term: whether ``partial F/partial Z`` is included.
        horizon: how many last steps count, for the engines that have one.

    >>> make_hypergradient("truncated", direct_term=False).horizon
    5
    """
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
