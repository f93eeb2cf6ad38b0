"""Checks of an estimator's parameters, each failure one sentence."""

from numbers import Integral, Real
from typing import Any

from gsebo.errors import InvalidInput

_LARGEST = 1e30


def require_count(**parameters: Any) -> None:
    """Each must be a whole number of at least 1."""
    for name, value in parameters.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected an integer >= 1.")


def require_count_or_zero(**parameters: Any) -> None:
    """Each must be a whole number of at least 0."""
    for name, value in parameters.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < 0:
            raise InvalidInput(f"{name}={value!r} given; expected an integer >= 0.")


def require_not_negative(**parameters: Any) -> None:
    """Each must be a number of at least 0 that single precision can hold with ease."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value <= _LARGEST:
            raise InvalidInput(
                f"{name}={value!r} given; expected a number from 0 to {_LARGEST:g}."
            )


def require_share(**parameters: Any) -> None:
    """Each must be a number of at least 0 and below 1."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected 0 <= {name} < 1.")


def require_fraction(**parameters: Any) -> None:
    """Each must be a number from 0 to 1."""
    require_from(0, 1, **parameters)


def require_from(low: float, high: float, **parameters: Any) -> None:
    """Each must be a number from one bound to the other, both allowed."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise InvalidInput(
                f"{name}={value!r} given; expected {low:g} <= {name} <= {high:g}."
            )


def require_between(low: float, high: float, **parameters: Any) -> None:
    """Each must be a number strictly between the bounds."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low < value < high:
            raise InvalidInput(
                f"{name}={value!r} given; expected {low:g} < {name} < {high:g}."
            )


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """It must be one of the choices."""
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise InvalidInput(f"{name}={value!r} given; expected {expected}.")


def require_flag(**parameters: Any) -> None:
    """Each must be true or false."""
    for name, value in parameters.items():
        if not isinstance(value, bool):
            raise InvalidInput(f"{name}={value!r} given; expected True or False.")


def require_seed(value: Any) -> None:
    """It must be a whole number of at least 0, or None for a fresh one."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (whole and 0 <= value < 2**63):
        raise InvalidInput(
            f"random_state={value!r} given; expected an integer >= 0, or None."
        )
