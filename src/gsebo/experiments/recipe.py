"""Recipes: which fits make a table or figure, as data in TOML files."""

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gsebo.data import NoiseSpec, noise_spec
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup, own_name

_FOLDER = Path(__file__).parent / "recipes"
_DEFAULT_SEEDS = 10


@dataclass(frozen=True, kw_only=True)
class Block:
    """Fits that share everything but what is listed: the product of all lists.

    Attributes:
        methods: Names.
        backbones: Names of the networks, or of rows with ``variants``.
        datasets: Names.
        preset: Name of a preset that the parameters start from.
        set: Further parameters of all.
        vary: Lists of values, by the names of the parameters that take them.
        variants: Networks that are tried for the row of a backbone; where a row is not
            named, the network of its name alone.
        noise: Numbers of false edges, or ``KIND:LEVEL`` of other noise.
        split: Of all datasets instead of their own; ``"halves"`` leaves out the test
            nodes and tests on half of the validation nodes.
        seeds: Number of seeds, if it differs from the recipe's.
        curves: Whether every step is recorded.
        label: What sets these cells apart from others of the same method and place.
        tuned_by: Name of a recipe, or its path, seen from the folder of the recipe that
            this block is in. Of what it tried for a method, row and dataset, the
            network and the varied parameters with the best mean accuracy are taken.
        tuned_as: The method whose choice it is, if not the own one.
        tuned_into: Name of the parameter that takes the choice as a dictionary, if not
            the parameters of these names.
    """

    methods: list[str]
    backbones: list[str]
    datasets: list[str]
    preset: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    vary: dict[str, list[Any]] = field(default_factory=dict)
    variants: dict[str, list[str]] = field(default_factory=dict)
    noise: list[NoiseSpec] = field(default_factory=lambda: [0])
    split: str | None = None
    seeds: int | None = None
    curves: bool = False
    label: str = ""
    tuned_by: str | None = None
    tuned_as: str | None = None
    tuned_into: str | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The fits of a table or figure.

    Attributes:
        name: Of its file, and of the file of its results.
        title: One line.
        about: What it shows, in a few sentences.
        seeds: Number of seeds of each cell, from 0 on.
        shows_edges: Whether it is about what became of the edges.
        parts: Names of recipes that belong to it, and are run after it.
        blocks: What is fitted.
    """

    name: str
    title: str
    about: str
    seeds: int
    shows_edges: bool
    parts: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def is_search(self) -> bool:
        """Whether it tests on validation nodes and sees no test node."""
        return all(block.split == "halves" for block in self.blocks)


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_recipe(name_or_path: str) -> Recipe:
    """Read a recipe by its name, or one of the user's own by its path.

    Raises:
        InvalidInput: There is none, or it does not say what a recipe has to say.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not path.is_file():
            raise InvalidInput(f"recipe {name_or_path} given; there is no such file.")
    else:
        known = {name: _FOLDER / f"{name}.toml" for name in recipe_names()}
        path = known[own_name("recipe", name_or_path, known)]
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no TOML: {error}.") from error
    return _recipe(path, content)


def _recipe(path: Path, content: dict[str, Any]) -> Recipe:
    blocks = content.pop("trials", None)
    expected = {
        "title": str,
        "about": str,
        "seeds": int,
        "shows_edges": bool,
        "parts": list,
    }
    defaults = {"seeds": _DEFAULT_SEEDS, "about": "", "shows_edges": False, "parts": []}
    content = {**defaults, **content}
    _check(path.name, content, expected, required=("title",))
    known = dict.fromkeys(recipe_names())
    parts = tuple(own_name("recipe", str(one), known) for one in content.pop("parts"))
    if not isinstance(blocks, list) or not blocks:
        raise InvalidInput(f"{path.name} has no [[trials]]; expected at least one.")
    read = tuple(
        _block(f"[[trials]] number {number} of {path.name}", block)
        for number, block in enumerate(blocks, 1)
    )
    near = tuple(_with_search_near(path.parent, block) for block in read)
    return Recipe(name=path.stem, blocks=near, parts=parts, **content)


def _with_search_near(folder: Path, block: Block) -> Block:
    """Turn the path of a search, if it is one, into one from the working directory."""
    if block.tuned_by is None or not block.tuned_by.endswith(".toml"):
        return block
    return replace(block, tuned_by=str(folder / block.tuned_by))


def _block(where: str, content: Any) -> Block:
    kinds: dict[str, type] = {
        "methods": list,
        "backbones": list,
        "datasets": list,
        "preset": str,
        "set": dict,
        "vary": dict,
        "variants": dict,
        "noise": list,
        "split": str,
        "seeds": int,
        "curves": bool,
        "label": str,
        "tuned_by": str,
        "tuned_as": str,
        "tuned_into": str,
    }
    assert set(kinds) == {one.name for one in fields(Block)}
    if not isinstance(content, dict):
        raise InvalidInput(f"{where} is {content!r}; expected a table.")
    _check(where, content, kinds, required=("methods", "backbones", "datasets"))
    for name in ("methods", "backbones", "datasets", "noise"):
        _check_list(f"{name} of {where}", content.get(name, [0]))
    for table in ("vary", "variants"):
        for name, values in content.get(table, {}).items():
            _check_list(f"{table}.{name} of {where}", values)
    what = f"noise of {where}"
    noise = [noise_spec(one, what) for one in content.get("noise", [0])]
    return Block(**{**content, "noise": noise})


def _check(
    where: str,
    content: dict[str, Any],
    kinds: dict[str, type],
    required: tuple[str, ...],
) -> None:
    for name in required:
        if name not in content:
            raise InvalidInput(f"{where} has no {name!r}; expected one.")
    for name, value in content.items():
        kind = lookup("key", name, kinds)
        if type(value) is not kind:
            raise InvalidInput(
                f"{name} of {where} is {value!r}; expected a {kind.__name__}."
            )
        if isinstance(value, int) and kind is int and value < 1:
            raise InvalidInput(f"{name} of {where} is {value}; expected 1 or more.")


def _check_list(what: str, values: Any) -> None:
    if not isinstance(values, list) or not values:
        raise InvalidInput(f"{what} is {values!r}; expected a list with some values.")
