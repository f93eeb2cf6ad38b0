"""Checks of an estimator's parameters, each failure one sentence."""

import math
from numbers import Integral, Real
from typing import Any

from gsebo.errors import InvalidInput


def require_count(**parameters: Any) -> None:
    """Each must be a whole number of at least 1."""
    for name, value in parameters.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected an integer >= 1.")


def require_not_negative(**parameters: Any) -> None:
    """Each must be a finite number of at least 0."""
    for name, value in parameters.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise InvalidInput(f"{name}={value!r} given; expected a number >= 0.")


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
