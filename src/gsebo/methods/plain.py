"""Parameters of an estimator in the form of JSON, and back; never as code."""

import json
from typing import Any

import numpy as np
import torch

from gsebo.errors import InvalidInput, escaped
from gsebo.lookup import lookup
from gsebo.training.batches import SAMPLERS, Sampler

_CODE, _SAMPLER, _SETTINGS = "code", "sampler", "settings"


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
