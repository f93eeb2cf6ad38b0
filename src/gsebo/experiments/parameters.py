"""The parameters of a trial, in the one form that identifies them."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from gsebo.errors import InvalidInput
from gsebo.lookup import lookup, unknown_name
from gsebo.methods import METHODS
from gsebo.methods.presets import preset_parameters

_NOT_PARAMETERS = ("backbone", "device", "random_state")


def trial_parameters(
    method: str,
    backbone: str,
    dataset: str,
    *,
    preset: str | None,
    wanted: dict[str, Any],
    welcome: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Put parameters together, and drop what equals the constructor's defaults.

    Args:
        method: Name of the method.
        backbone: Name of the network.
        dataset: Name of the dataset.
        preset: Name of a preset to start from.
        wanted: What the method has to take.
        welcome: What is used if the method takes it.

    Raises:
        InvalidInput: The method has no such parameter.
    """
    defaults = default_parameters(method)
    if unknown := set(wanted) - set(defaults):
        raise InvalidInput(
            unknown_name(f"parameter of {method}", min(unknown), defaults)
        )
    start: dict[str, Any] = {}
    if preset is not None:
        start = preset_parameters(preset, backbone, method=method, dataset=dataset)
    merged = {**start, **(welcome or {})}
    merged = {name: value for name, value in merged.items() if name in defaults}
    for name, value in wanted.items():
        if isinstance(value, dict) and isinstance(merged.get(name), dict):
            value = {**merged[name], **value}
        merged[name] = value
    return {
        name: value
        for name, value in sorted(merged.items())
        if value != defaults[name] or type(value) is not type(defaults[name])
    }


@cache
def default_parameters(method: str) -> Mapping[str, Any]:
    """Every parameter of a method but network, device and seed, by the constructor."""
    defaults = lookup("method", method, METHODS).estimator().get_params(deep=False)
    own = {name: v for name, v in defaults.items() if name not in _NOT_PARAMETERS}
    return MappingProxyType(own)
