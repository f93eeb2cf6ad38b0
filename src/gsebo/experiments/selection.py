"""A part of a recipe: what ``--only`` asks for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from gsebo.data import DATASETS
from gsebo.errors import InvalidInput
from gsebo.experiments.expand import Planned
from gsebo.experiments.recipe import (
    ExperimentRecipe,
    TrialBlock,
    load_recipe,
    require_few_trials,
)
from gsebo.lookup import own_name
from gsebo.methods import METHODS


@dataclass(frozen=True)
class Selection:
    """Trials that have one of the wanted values of each key.

    Attributes:
        wanted: Values by key: ``method``, ``backbone``, ``dataset``, ``noise``,
            ``seed``. A key that is not there is not asked for.
    """

    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = (f"{key}={','.join(sorted(v))}" for key, v in self.wanted.items())
        return " ".join(parts)

    def narrowed(self, recipe: ExperimentRecipe) -> ExperimentRecipe:
        """Leave out of a recipe what cannot be wanted, so that no search is needed.

        Which network is in a row may depend on a search: more rows than are wanted
        may be left.
        """
        blocks = (self._narrowed_block(block) for block in recipe.blocks)
        kept = tuple(
            block
            for block in blocks
            if block.methods and block.backbones and block.datasets and block.noise
        )
        return replace(recipe, blocks=kept)

    def matches(self, planned: Planned) -> bool:
        """Whether a trial is wanted."""
        trial, row = planned.trial, planned.cell.row
        return (
            self._has("method", trial.method)
            and self._has("backbone", row, trial.backbone)
            and self._has("dataset", trial.dataset)
            and self._has("noise", str(trial.noise))
            and self._has("seed", str(trial.seed))
        )

    def _narrowed_block(self, block: TrialBlock) -> TrialBlock:
        return structs.replace(
            block,
            methods=[one for one in block.methods if self._has("method", _method(one))],
            backbones=[
                row
                for row in block.backbones
                if self._has("backbone", row, *_networks(block, row))
            ],
            datasets=[
                one for one in block.datasets if self._has("dataset", _dataset(one))
            ],
            noise=[one for one in block.noise if self._has("noise", str(one))],
        )

    def _has(self, key: str, *values: str) -> bool:
        return key not in self.wanted or not self.wanted[key].isdisjoint(values)


def select(
    recipe: ExperimentRecipe, texts: Iterable[str], seeds: int | None = None
) -> Selection:
    """Read what is wanted of a recipe.

    Args:
        recipe: The recipe.
        texts: Each is ``KEY=VALUE`` or ``KEY=VALUE,VALUE``.
        seeds: Number of seeds instead of the recipe's own.

    Raises:
        InvalidInput: A key is unknown, or the recipe has no such value.
    """
    require_few_trials(recipe, seeds)
    known = _values(recipe, seeds)
    wanted: dict[str, frozenset[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        names = [one.strip() for one in values.split(",") if one.strip()]
        if not names:
            raise InvalidInput(
                f"--only {text} given; expected KEY=VALUE, such as method=gsebo."
            )
        key = own_name("key of --only", name, known)
        kind = f"{key} of the recipe {recipe.name}"
        found = {own_name(kind, one, known[key]) for one in names}
        wanted[key] = wanted.get(key, frozenset()) | found
    return Selection(wanted)


def _values(recipe: ExperimentRecipe, seeds: int | None) -> dict[str, dict[str, None]]:
    """Everything that a recipe has, by the key that it is asked for with."""
    known: dict[str, dict[str, None]] = {
        key: {} for key in ("method", "backbone", "dataset", "noise", "seed")
    }
    for block in recipe.blocks:
        number = seeds or block.seeds or recipe.seeds
        rows = block.backbones
        networks = [name for row in rows for name in sorted(_networks(block, row))]
        known["method"] |= dict.fromkeys(map(_method, block.methods))
        known["backbone"] |= dict.fromkeys([*rows, *networks])
        known["dataset"] |= dict.fromkeys(map(_dataset, block.datasets))
        known["noise"] |= dict.fromkeys(map(str, block.noise))
        known["seed"] |= dict.fromkeys(map(str, range(number)))
    return known


def _networks(block: TrialBlock, row: str) -> set[str]:
    """The networks that may be in a row, by the search if there is one."""
    blocks = load_recipe(block.tuned_by).blocks if block.tuned_by else (block,)
    return {name for one in blocks for name in one.variants.get(row, [row])}


def _method(name: str) -> str:
    return own_name("method", name, METHODS)


def _dataset(name: str) -> str:
    return own_name("dataset", name, DATASETS)
