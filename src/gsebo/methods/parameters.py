"""An estimator's parameters: reading, changing and checking them."""

import json
from inspect import signature
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch

from gsebo.errors import InvalidInput, escaped
from gsebo.loader import SAMPLERS, Sampler
from gsebo.lookup import lookup, unknown_name

_CODE, _SAMPLER, _SETTINGS = "code", "sampler", "settings"


class SklearnEstimator:
    """What scikit-learn expects of an estimator, without loading scikit-learn.

    It takes longer to load than a small fit takes, and nothing of it is needed for one.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor, by name.

        Args:
            deep: Also those of parameters that are estimators themselves, as
                ``name__their_name``.
        """
        found: dict[str, Any] = {}
        for name in sorted(signature(type(self)).parameters):
            found[name] = value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                inside = value.get_params().items()
                found |= {f"{name}__{each}": own for each, own in inside}
        return found

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters, named as in :meth:`get_params`.

        Raises:
            InvalidInput: There is no such parameter.
        """
        known = signature(type(self)).parameters
        for name, value in parameters.items():
            own, _, inside = name.partition("__")
            if own not in known:
                kind = f"parameter of {type(self).__name__}"
                raise InvalidInput(unknown_name(kind, own, known))
            if inside:
                getattr(self, own).set_params(**{inside: value})
            else:
                setattr(self, own, value)
        return self

    def __repr__(self) -> str:
        taken = signature(type(self)).parameters
        parameters = self.get_params(deep=False).items()
        changed = [f"{k}={v!r}" for k, v in parameters if v is not taken[k].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)

    def require_fitted(self) -> None:
        """Raise scikit-learn's ``NotFittedError`` before a fit."""
        if not hasattr(self, "model_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' "
                "with appropriate arguments before using this estimator."
            )


def plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as JSON can hold them; what is code is only named."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, torch.device):
            value = str(value)
        if isinstance(value, Sampler):
            value = _of_sampler(value) or value
        try:
            # What comes back is what a file will say: lists for tuples, for example.
            plain[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            kind = value if isinstance(value, type) else type(value)
            plain[name] = {_CODE: f"{kind.__module__}.{kind.__qualname__}"}
    return plain


def code_in(value: Any) -> str | None:
    """What was code where a plain parameter stands; ``None`` if nothing was."""
    if isinstance(value, dict) and set(value) == {_CODE}:
        return escaped(str(value[_CODE]), longest=200)
    return None


def parameter_from(value: Any) -> Any:
    """What a plain parameter stands for.

    Raises:
        InvalidInput: There is no such sampler, or it has no such settings.
    """
    if not (isinstance(value, dict) and set(value) == {_SAMPLER, _SETTINGS}):
        return value
    kind, settings = lookup("sampler", value[_SAMPLER], SAMPLERS), value[_SETTINGS]
    try:
        # JSON has no tuples.
        return kind(
            **{
                name: tuple(each) if isinstance(each, list) else each
                for name, each in settings.items()
            }
        )
    except (AttributeError, TypeError) as error:
        raise InvalidInput(
            f"the model has settings of its sampler that {kind.__name__} does not take "
            f"({escaped(str(error), longest=200)}); expected those it was saved with."
        ) from error


def _of_sampler(sampler: Sampler) -> dict[str, Any] | None:
    """Name and settings of a sampler; ``None`` for one that is the user's own."""
    names = [name for name, kind in SAMPLERS.items() if type(sampler) is kind]
    if not names:
        return None
    settings = json.loads(json.dumps(vars(sampler), default=_plain_number))
    return {_SAMPLER: names[0], _SETTINGS: settings}


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no setting of a sampler")


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
