"""Samplers in the form of JSON: their name and settings, never code."""

import json
from typing import Any

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.lookup import lookup
from gsebo.training.batches import SAMPLERS, Sampler

_NAME, _SETTINGS = "sampler", "settings"


def sampler_facts(sampler: Sampler) -> dict[str, Any] | None:
    """Return a sampler as JSON can hold it; ``None`` for one that is the user's own."""
    names = [name for name, kind in SAMPLERS.items() if type(sampler) is kind]
    if not names:
        return None
    settings = json.loads(json.dumps(vars(sampler), default=_plain_number))
    return {_NAME: names[0], _SETTINGS: settings}


def is_sampler(value: Any) -> bool:
    """Whether a stored parameter is what :func:`sampler_facts` returned."""
    return isinstance(value, dict) and set(value) == {_NAME, _SETTINGS}


def sampler_from(facts: dict[str, Any]) -> Sampler:
    """Build the sampler that was stored.

    Raises:
        InvalidInput: There is no such sampler, or it has no such settings.
    """
    kind, settings = lookup("sampler", facts[_NAME], SAMPLERS), facts[_SETTINGS]
    try:
        # JSON has no tuples.
        return kind(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in settings.items()
            }
        )
    except (AttributeError, TypeError) as error:
        raise InvalidInput(
            f"the model has settings of its sampler that {kind.__name__} does not take "
            f"({error}); expected those it was saved with."
        ) from error


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no setting of a sampler")
