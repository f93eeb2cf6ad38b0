"""Checks of an estimator's parameters, each failure one sentence."""

from numbers import Integral, Real
from typing import Any

from gsebo.errors import InvalidInput, escaped

_LARGEST = 1e30
_MOST_STEPS = 10**6
_AS_MANY_AS_THERE_ARE = 2**31 - 1
_MOST_SAMPLES = 10**4
_WIDEST_SIDE_NETWORK = 2**14
_MOST = {
    "hidden_channels": 2**16,
    "num_layers": 128,
    "num_heads": 1000,
    "num_folds": 1000,
    # Made at the same time.
    "replicas": _MOST_SAMPLES,
    "samples": _MOST_SAMPLES,
    "test_samples": _MOST_SAMPLES,
    "passes": _MOST_SAMPLES,
    "max_iterations": _MOST_SAMPLES,
    "batches_per_step": _MOST_SAMPLES,
    "edge_channels": _WIDEST_SIDE_NETWORK,
    "pair_channels": _WIDEST_SIDE_NETWORK,
    "predictor_dim": _WIDEST_SIDE_NETWORK,
    "predictor_hidden": _WIDEST_SIDE_NETWORK,
    "scorer_channels": _WIDEST_SIDE_NETWORK,
    # More than there are is all of them, or never.
    "batch_nodes": _AS_MANY_AS_THERE_ARE,
    "batch_size": _AS_MANY_AS_THERE_ARE,
    "candidates": _AS_MANY_AS_THERE_ARE,
    "inner_patience": _AS_MANY_AS_THERE_ARE,
    "num_add": _AS_MANY_AS_THERE_ARE,
    "num_neighbours": _AS_MANY_AS_THERE_ARE,
    "num_remove": _AS_MANY_AS_THERE_ARE,
    "num_singular_values": _AS_MANY_AS_THERE_ARE,
    "patience": _AS_MANY_AS_THERE_ARE,
}


def most_of(name: str) -> int:
    """The largest value of a parameter that is a number of things.

    Far beyond what anybody needs; it is there for slips, which would otherwise train,
    or allocate, for ever. Whether what is allowed fits into memory is another question.
    """
    return _MOST.get(name, _MOST_STEPS)


def require_count(**parameters: Any) -> None:
    """Each must be a whole number of at least 1."""
    _require_whole(1, parameters)


def require_count_or_zero(**parameters: Any) -> None:
    """Each must be a whole number of at least 0."""
    _require_whole(0, parameters)


def _require_whole(least: int, parameters: dict[str, Any]) -> None:
    for name, value in parameters.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < least:
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected an integer >= {least}."
            )
        if value > most_of(name):
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected an integer from {least} to "
                f"{most_of(name)}."
            )


def _shown(value: Any) -> str:
    try:
        return escaped(repr(value), longest=80)
    except ValueError:
        # Python does not write out integers of thousands of digits.
        return "a number of thousands of digits"


def require_not_negative(**parameters: Any) -> None:
    """Each must be a number of at least 0 that single precision can hold with ease."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value <= _LARGEST:
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected a number from 0 to "
                f"{_LARGEST:g}."
            )


def require_share(**parameters: Any) -> None:
    """Each must be a number of at least 0 and below 1."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected 0 <= {name} < 1."
            )


def require_fraction(**parameters: Any) -> None:
    """Each must be a number from 0 to 1."""
    require_from(0, 1, **parameters)


def require_from(low: float, high: float, **parameters: Any) -> None:
    """Each must be a number from one bound to the other, both allowed."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected {low:g} <= {name} <= {high:g}."
            )


def require_between(low: float, high: float, **parameters: Any) -> None:
    """Each must be a number strictly between the bounds."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low < value < high:
            raise InvalidInput(
                f"{name}={_shown(value)} given; expected {low:g} < {name} < {high:g}."
            )


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """It must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise InvalidInput(f"{name}={_shown(value)} given; expected {expected}.")


def require_flag(**parameters: Any) -> None:
    """Each must be true or false."""
    for name, value in parameters.items():
        if not isinstance(value, bool):
            raise InvalidInput(f"{name}={_shown(value)} given; expected True or False.")


def require_seed(value: Any) -> None:
    """It must be a whole number of at least 0, or None for a fresh one."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (whole and 0 <= value < 2**63):
        raise InvalidInput(
            f"random_state={_shown(value)} given; expected an integer >= 0, or None."
        )
