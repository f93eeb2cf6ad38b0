"""Named sets of parameters, kept as data: TOML files called after their presets.

A preset is a list of rules. A rule may name a method, a backbone and a dataset, and
holds for fits that match all it names; where several do, later ones win. It only holds
what differs from the constructor's defaults.
"""

from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gsebo.files import Key, Name, Record, Text, Value, read_toml_as
from gsebo.names import lookup, normalise

_FOLDER = Path(__file__).parent / "preset_files"


class Rule(Record, frozen=True, kw_only=True, dict=True):
    """Parameters for some fits.

    Attributes:
        parameters: What to set.
        method: Name of the only method that it is for, or names of several.
        backbone: Name of the only backbone that it is for.
        dataset: Name of the only dataset that it is for.
        note: Where the values come from.
    """

    parameters: dict[Key, Value]
    method: Name | list[Name] | None = None
    backbone: Name | None = None
    dataset: Name | None = None
    note: Text = ""

    def holds(self, method: str, backbone: str, dataset: str) -> bool:
        """Whether the rule is for such a fit."""
        methods, backbones, datasets = self._names
        return (
            (methods is None or normalise(method) in methods)
            and (backbones is None or normalise(backbone) in backbones)
            and (datasets is None or normalise(dataset) in datasets)
        )

    @cached_property
    def _names(self) -> tuple[frozenset[str] | None, ...]:
        """Of methods, backbones and datasets; a table asks millions of times."""
        return tuple(map(_normalised, (self.method, self.backbone, self.dataset)))


class _PresetFile(Record, frozen=True, kw_only=True):
    """What the file of a preset consists of."""

    rule: list[Rule]


def _normalised(names: str | list[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    return frozenset(map(normalise, [names] if isinstance(names, str) else names))


@cache
def presets() -> dict[str, tuple[Rule, ...]]:
    """All presets by name."""
    found: dict[str, tuple[Rule, ...]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        # "paper.tuned.toml" has more rules of "paper", and they win.
        name = path.name.partition(".")[0]
        rules = read_toml_as(_PresetFile, path, "a preset").rule
        found[name] = found.get(name, ()) + tuple(rules)
    return found


def preset_parameters(
    preset: str, backbone: str, *, method: str = "gsebo", dataset: str = ""
) -> dict[str, Any]:
    """Parameters of a preset for a fit; none where no rule holds.

    Options of the backbone are put together, everything else is replaced.
    """
    parameters: dict[str, Any] = {}
    for rule in lookup("preset", preset, presets()):
        if not rule.holds(method, backbone, dataset):
            continue
        for name, value in rule.parameters.items():
            if isinstance(value, dict):
                value = {**parameters.get(name, {}), **value}
            parameters[name] = value
    return parameters
