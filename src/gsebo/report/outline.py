"""What a recipe is about, whether or not anything is stored for it."""

from dataclasses import dataclass

from gsebo.data.noise_kinds import INTER_CLASS
from gsebo.experiments import Recipe
from gsebo.experiments.expand import places
from gsebo.report.noise_levels import Levels, levels_by_kind


@dataclass(frozen=True)
class Outline:
    """The names in a recipe, each once, in its order.

    Attributes:
        methods: Of the methods.
        rows: Of the networks.
        datasets: Of the datasets.
        noise: Levels of each kind of noise, ascending.
    """

    methods: tuple[str, ...]
    rows: tuple[str, ...]
    datasets: tuple[str, ...]
    noise: Levels

    @property
    def false_edges(self) -> tuple[int, ...]:
        """Numbers of false edges between classes, ascending; other noise left out."""
        levels = self.noise.get(INTER_CLASS, (0,))
        return tuple(level for level in levels if isinstance(level, int))


def outline(recipe: Recipe) -> Outline:
    """List all names of a recipe."""
    found = [place for block in recipe.blocks for place in places(block)]
    return Outline(
        methods=tuple(dict.fromkeys(method for method, _, _ in found)),
        rows=tuple(dict.fromkeys(row for _, row, _ in found)),
        datasets=tuple(dict.fromkeys(dataset for _, _, dataset in found)),
        noise=levels_by_kind(one for block in recipe.blocks for one in block.noise),
    )
