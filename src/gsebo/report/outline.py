"""What a recipe is about, whether or not anything is stored for it."""

from dataclasses import dataclass

from gsebo.experiments import Recipe
from gsebo.experiments.expand import places


@dataclass(frozen=True)
class Outline:
    """The names in a recipe, each once, in its order.

    Attributes:
        methods: Of the methods.
        rows: Of the networks.
        datasets: Of the datasets.
        noise: Numbers of false edges, ascending.
    """

    methods: tuple[str, ...]
    rows: tuple[str, ...]
    datasets: tuple[str, ...]
    noise: tuple[int, ...]


def outline(recipe: Recipe) -> Outline:
    """List all names of a recipe."""
    found = [place for block in recipe.blocks for place in places(block)]
    return Outline(
        methods=tuple(dict.fromkeys(method for method, _, _ in found)),
        rows=tuple(dict.fromkeys(row for _, row, _ in found)),
        datasets=tuple(dict.fromkeys(dataset for _, _, dataset in found)),
        noise=tuple(
            sorted({count for block in recipe.blocks for count in block.noise})
        ),
    )
