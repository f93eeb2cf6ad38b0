"""``--set name=value``: text to parameters of a method, by the type of each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from gsebo.data.datasets.registry import require_known_graph
from gsebo.errors import InvalidInput
from gsebo.lookup import own_name, unknown_name
from gsebo.methods import METHODS
from gsebo.methods.presets import preset_parameters, presets


@dataclass(frozen=True)
class FitOptions:
    """The options that ``fit`` and ``compare`` share.

    Attributes:
        dataset: Registered name or path.
        backbone: Name of the network, if it was given.
        preset: Name of a set of parameters, if any.
        settings: ``name=value`` of each ``--set``.
        seed: First seed.
        seeds: Number of seeds, if it was given.
        split: Name of the split, if it was given.
        noise: Number of inter-class edges to add, or ``KIND:LEVEL`` of other noise.
        data_dir: Where to look for datasets first.
        normalize: Whether to normalise features; ``None`` follows the dataset.
        device: Where to compute.
    """

    dataset: str
    backbone: str | None
    preset: str | None
    settings: tuple[str, ...]
    seed: int
    seeds: int | None
    split: str | None
    noise: int | str
    data_dir: Path | None
    normalize: bool | None
    device: str

    @property
    def all_seeds(self) -> list[int]:
        """Every seed to run."""
        return list(range(self.seed, self.seed + (self.seeds or 1)))

    def check_names(self, methods: Sequence[str]) -> None:
        """Raise for the name of a graph, method or preset that does not exist."""
        require_known_graph(self.dataset)
        for method in methods:
            own_name("method", method, METHODS)
        if self.preset is not None:
            own_name("preset", self.preset, presets())

    def parameter(self, method: str, name: str) -> Any:
        """What the options say of a parameter of a method, if anything."""
        method = own_name("method", method, METHODS)
        settings = read_settings(self.settings, [METHODS[method].estimator])
        return parameters_of(self, method, settings).get(name)


class ModelPlace(NamedTuple):
    """Where the model goes; only the first of several processes writes it."""

    out: Path
    resume: bool
    checkpoint_seconds: float
    is_first: bool


# These have options of their own, whose values are also reported.
_OWN_OPTION = {"backbone": "--backbone", "device": "--device", "random_state": "--seed"}


class Setting(NamedTuple):
    """One ``--set``: ``name=text`` or ``name.option=text``."""

    name: str
    option: str | None
    text: str

    def __str__(self) -> str:
        inside = f".{self.option}" if self.option else ""
        return f"--set {self.name}{inside}={self.text}"


def short_settings(**given: object) -> tuple[str, ...]:
    """Return ``name=value`` for each option that was given.

    >>> short_settings(batch_size=64, sampler=None)
    ('batch_size=64',)
    """
    return tuple(f"{name}={v}" for name, v in given.items() if v is not None)


def read_settings(items: Iterable[str], estimators: Sequence[type]) -> list[Setting]:
    """Split each item and check that some of the estimators take it.

    Args:
        items: As typed, ``name=value``.
        estimators: Classes whose constructors' parameters are the valid names.
    """
    known = {name: kind for each in estimators for name, kind in _hints(each).items()}
    settings = [_split(item) for item in items]
    for setting in settings:
        if setting.name in _OWN_OPTION:
            option = _OWN_OPTION[setting.name]
            raise InvalidInput(f"{setting} given; expected it as {option}.")
        if setting.name not in known:
            free = {
                name: kind for name, kind in known.items() if name not in _OWN_OPTION
            }
            raise InvalidInput(unknown_name("parameter", setting.name, free))
    return settings


def parameters_from(settings: Iterable[Setting], estimator: type) -> dict[str, Any]:
    """Read the values of those settings that the estimator takes."""
    hints = _hints(estimator)
    parameters: dict[str, Any] = {}
    for setting in settings:
        if setting.name not in hints:
            continue
        kinds = _plain_kinds(hints[setting.name])
        if setting.option is None:
            parameters[setting.name] = _read(setting, kinds)
        elif dict in kinds:
            value = _read(setting, set(_READERS))
            others = parameters.get(setting.name) or {}
            parameters[setting.name] = {**others, setting.option: value}
        else:
            raise InvalidInput(f"{setting} given; expected {setting.name}=VALUE.")
    return parameters


def _split(item: str) -> Setting:
    path, equals, text = item.partition("=")
    name, dot, option = path.strip().partition(".")
    name, option, text = name.replace("-", "_"), option.strip(), text.strip()
    if not equals or not name or not text or bool(dot) != bool(option):
        raise InvalidInput(
            f"--set {item} given; expected --set NAME=VALUE, such as inner_steps=20 or "
            "backbone_options.heads=4."
        )
    return Setting(name, option or None, text)


def _hints(estimator: type) -> dict[str, Any]:
    hints = get_type_hints(estimator.__init__)  # type: ignore[misc]
    hints.pop("return", None)
    return hints


def _plain_kinds(annotation: Any) -> set[type]:
    """Flatten unions and literals to the classes inside them."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return {kind for part in get_args(annotation) for kind in _plain_kinds(part)}
    if origin is Literal:
        return {type(value) for value in get_args(annotation)}
    return {origin or annotation}


def _read_none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError


def _read_bool(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError from None


# In this order: a text is read as the first kind that fits.
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    NoneType: (_read_none, "none"),
    bool: (_read_bool, "true or false"),
    int: (int, "an integer"),
    float: (float, "a number"),
    str: (str, "a text"),
}


def _read(setting: Setting, kinds: set[type]) -> Any:
    expected = []
    for kind, (read, words) in _READERS.items():
        if kind not in kinds:
            continue
        try:
            return read(setting.text)
        except ValueError:
            expected.append(words)
    if dict in kinds:
        expected.append(f"{setting.name}.NAME=VALUE")
    raise InvalidInput(f"{setting} given; expected {' or '.join(reversed(expected))}.")


def parameters_of(
    plan: FitOptions, method: str, settings: Sequence[Setting]
) -> dict[str, Any]:
    """Put together the parameters of a method, its network among them.

    Args:
        plan: The options.
        method: Its registered name.
        settings: What was typed as ``--set``.
    """
    estimator = METHODS[method].estimator
    given = parameters_from(settings, estimator)
    taken = METHODS[method].defaults
    own = {"backbone": plan.backbone or taken["backbone"]}
    if plan.preset is None:
        return {**given, **own}
    preset = preset_parameters(
        plan.preset, own["backbone"], method=method, dataset=plan.dataset
    )
    preset = {name: v for name, v in preset.items() if name in taken}
    for name in preset.keys() & given.keys():
        if isinstance(preset[name], dict) and isinstance(given[name], dict):
            given[name] = {**preset[name], **given[name]}
    return {**preset, **given, **own}
