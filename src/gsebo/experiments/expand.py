"""Blocks of recipes to trials."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any

from gsebo.data import DATASETS, NoiseSpec
from gsebo.errors import InvalidInput
from gsebo.experiments.recipe import TrialBlock
from gsebo.experiments.trial import Trial, full_split_name
from gsebo.lookup import lookup, own_name, unknown_name
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
    defaults = lookup("method", method, METHODS).defaults
    own = {name: v for name, v in defaults.items() if name not in _NOT_PARAMETERS}
    return MappingProxyType(own)


@dataclass(frozen=True)
class Cell:
    """A place in a table: the trials in it differ by their seeds alone.

    Attributes:
        method: Name of the method.
        row: Name of the backbone, as the recipe says it.
        dataset: Name of the dataset.
        noise: Number of false edges, or ``KIND:LEVEL`` of other noise.
        setting: The block's label and the varied parameters in words; empty without
            any.
    """

    method: str
    row: str
    dataset: str
    noise: NoiseSpec = 0
    setting: str = ""


@dataclass(frozen=True)
class Candidate:
    """What a search may choose.

    Attributes:
        backbone: Name of the network.
        parameters: The varied ones.
    """

    backbone: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A trial, the cell that it is for, and what was varied to get it."""

    cell: Cell
    trial: Trial
    candidate: Candidate


def places(block: TrialBlock) -> Iterator[tuple[str, str, str]]:
    """Every method, row and dataset that go together."""
    methods = [own_name("method", name, METHODS) for name in block.methods]
    datasets = [own_name("dataset", name, DATASETS) for name in block.datasets]
    for method, row, dataset in product(methods, block.backbones, datasets):
        supported = METHODS[method].backbones
        if not supported or row in supported:
            yield method, row, dataset


def block_trials(
    block: TrialBlock,
    method: str,
    row: str,
    dataset: str,
    seeds: int,
    taken: Candidate | None = None,
) -> Iterator[Planned]:
    """The trials of one method, row and dataset.

    Args:
        block: Says everything else.
        method: Name of the method.
        row: Name of a row of the block.
        dataset: Name of the dataset.
        seeds: How many.
        taken: What a search chose for them.
    """
    networks = [taken.backbone] if taken else block.variants.get(row, [row])
    tuned = taken.parameters if taken else {}
    wanted, welcome = dict(block.set), tuned
    if block.tuned_into is not None:
        wanted, welcome = {block.tuned_into: tuned, **wanted}, {}
    for backbone, noise, varied in product(networks, block.noise, _varied(block)):
        parameters = trial_parameters(
            method,
            backbone,
            dataset,
            preset=block.preset,
            wanted={**wanted, **varied},
            welcome=welcome,
        )
        network = {"backbone": backbone} if row in block.variants else {}
        words = (block.label, setting_in_words(network | varied))
        cell = Cell(method, row, dataset, noise, ", ".join(filter(None, words)))
        for seed in range(seeds):
            trial = Trial(
                method=method,
                backbone=backbone,
                dataset=dataset,
                split=full_split_name(dataset, block.split),
                seed=seed,
                noise=noise,
                parameters=parameters,
                curves=block.curves,
            )
            yield Planned(cell, trial, Candidate(backbone, varied))


def _varied(block: TrialBlock) -> Iterator[dict[str, Any]]:
    for values in product(*block.vary.values()):
        yield dict(zip(block.vary, values, strict=True))


def setting_in_words(parameters: dict[str, Any]) -> str:
    """Say what parameters are.

    >>> setting_in_words({"inner_steps": 20, "select_by": "loss"})
    'inner_steps = 20, select_by = loss'
    """
    return ", ".join(
        f"{name} = {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in parameters.items()
    )
