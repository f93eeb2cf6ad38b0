"""What an estimator's parameters may be, declared once, and how files hold them.

The annotation of a parameter is its declaration: an ``Annotated`` number with its
limits or name with its registry, a ``Literal``, ``bool`` or a dictionary, each perhaps
``| None``. The check before a fit, the command line and the tests read it there.
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from msgspec import Meta

from gsebo.bilevel.registry import HYPERGRADIENTS, OPTIMIZERS
from gsebo.data.preparation import PREPARATIONS
from gsebo.errors import InvalidInput, escaped
from gsebo.loader import SAMPLERS, Sampler
from gsebo.names import lookup, names_among, own_name, unknown_name
from gsebo.structure import EVIDENCE

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
# Far beyond what anybody needs: limits are there for slips, which would otherwise
# train, or allocate, for ever. Whether what is allowed fits into memory is another
# question.
Width = Annotated[int, Meta(ge=1, le=2**16)]
"""Channels of a layer."""
SideWidth = Annotated[int, Meta(ge=1, le=2**14)]
"""Channels of a small network that looks at edges or pairs."""
Depth = Annotated[int, Meta(ge=1, le=128)]
"""Number of layers."""
Steps = Annotated[int, Meta(ge=1, le=10**6)]
"""How often something is done, one after the other."""
StepsOrZero = Annotated[int, Meta(ge=0, le=10**6)]
"""The same, for what may be left out."""
Samples = Annotated[int, Meta(ge=1, le=10**4)]
"""How many are made at the same time."""
CountOrZero = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""How many of what there is: more than there are is all of them."""
NumFolds = Annotated[int, Meta(ge=2, le=1000)]
"""Into how many parts labelled nodes are divided."""
ShareBelowOne = Annotated[float, Meta(ge=0, lt=1)]
"""Part of a whole that leaves something of it."""
Rate = Annotated[
    float,
    Meta(ge=0, le=_LARGEST, description=f"a number from 0 to {_LARGEST:g}"),
]
"""Learning rate or weight of a term, which single precision can hold with ease."""
Positive = Annotated[float, Meta(gt=0, lt=_LARGEST)]
"""What is divided by."""
Temperature = Annotated[float, Meta(ge=0.01, le=100)]
"""To the power of one over it, probabilities become sharper or flatter."""
OptionalSeed = (
    Annotated[int, Meta(ge=0, le=2**63 - 1, description="an integer >= 0, or None")]
    | None
)
"""What random numbers begin with; ``None`` for a fresh one."""


@dataclass(frozen=True, eq=False)
class NameIn:
    """Says of a text that it is a name in a registry of such things."""

    kind: str
    names: Mapping[str, Any]


class NamesIn(NameIn):
    """The same of several names, separated by commas, or ``"all"``."""


OptimizerName = Annotated[str, NameIn("optimizer", OPTIMIZERS)]
HypergradientName = Annotated[str, NameIn("hypergradient", HYPERGRADIENTS)]
FeaturesName = Annotated[str, NameIn("features", PREPARATIONS)]
SamplerName = Annotated[str, NameIn("sampler", SAMPLERS)]
EvidenceNames = Annotated[str, NamesIn("evidence", EVIDENCE)]


def declared_parameters(estimator: type) -> dict[str, Any]:
    """The annotations of a constructor, which say all that each parameter may be."""
    hints = get_type_hints(
        estimator.__init__,  # type: ignore[misc]
        include_extras=True,
    )
    hints.pop("return", None)
    return hints


def alternatives(declared: Any) -> tuple[Any, ...]:
    """The parts of a union, or the only one."""
    union = get_origin(declared) in (Union, UnionType)
    return get_args(declared) if union else (declared,)


def require_declared(name: str, value: Any, declared: Any) -> None:
    """Raise unless a value is what its annotation says.

    Of a text without a registry an annotation says too little: whoever looks up the
    name checks it.
    """
    kinds = alternatives(declared)
    if value is None and NoneType in kinds:
        return
    for kind in kinds:
        if get_origin(kind) is Annotated and get_args(kind)[0] is str:
            # An object may stand in place of its name.
            objects = tuple(other for other in kinds if isinstance(other, type))
            if not isinstance(value, objects):
                said = get_args(kind)[1]
                if isinstance(said, NamesIn):
                    if value != "all":
                        names_among(name, value, said.names)
                elif isinstance(value, str):
                    own_name(said.kind, value, said.names)
                else:
                    raise _refused(name, value, f"one of: {', '.join(said.names)}")
        elif get_origin(kind) is Annotated:
            _require_number(name, value, *get_args(kind))
        elif get_origin(kind) is Literal:
            require_choice(name, value, get_args(kind))
        elif get_origin(kind) is dict:
            _require_names(name, value)
        elif kind is bool and not isinstance(value, bool):
            raise _refused(name, value, "True or False")


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """It must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise _refused(name, value, " or ".join(repr(choice) for choice in choices))


def _require_number(name: str, value: Any, kind: type, limits: Meta) -> None:
    """Raise for what is no number of the kind, or not within its limits.

    The lower one is always there; without an upper one any finite number will do.
    """
    number = isinstance(value, Integral if kind is int else Real)
    number = number and not isinstance(value, bool)
    enough = number and (value > limits.gt if limits.ge is None else value >= limits.ge)
    most = sys.float_info.max if limits.le is None else limits.le
    if enough and (value <= most if limits.lt is None else value < limits.lt):
        return
    if limits.description is not None:
        raise _refused(name, value, limits.description)
    if kind is int:
        above = f"an integer from {limits.ge} to {limits.le}"
        raise _refused(name, value, above if enough else f"an integer >= {limits.ge}")
    low = f"{limits.gt:g} <" if limits.ge is None else f"{limits.ge:g} <="
    below = math.inf if limits.lt is None else limits.lt
    high = f"< {below:g}" if limits.le is None else f"<= {limits.le:g}"
    raise _refused(name, value, f"{low} {name} {high}")


def _require_names(name: str, value: Any) -> None:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        expected = "a dictionary from names to values, or None"
        raise _refused(name, value, expected)


def _refused(name: str, value: Any, expected: str) -> InvalidInput:
    try:
        shown = escaped(repr(value), longest=80)
    except ValueError:
        # Python does not write out integers of thousands of digits.
        shown = "a number of thousands of digits"
    return InvalidInput(f"{name}={shown} given; expected {expected}.")
