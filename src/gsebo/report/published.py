"""The paper's figures, to stand beside ours."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


def published_figure(
    recipe: str, row: str, method: str, dataset: str
) -> tuple[float, float] | None:
    """Mean and standard deviation in percent that the paper prints.

    Args:
        recipe: Name of the recipe; of most, nothing was printed.
        row: Name of the backbone.
        method: Name of the method.
        dataset: Name of the dataset, which has no false edges.
    """
    content = _published()
    same = content["printed_as"]
    if dataset not in content["datasets"]:
        return None
    place = content["datasets"].index(dataset)
    for table in content["recipes"].get(recipe, ()):
        rows = content[table].get(same.get(row, row), {})
        if printed := rows.get(same.get(method, method)):
            mean, std = printed[place]
            return mean, std
    return None


def published_gain(row: str) -> float | None:
    """By how many percent GSEBO beats vanilla at :func:`gain_place`."""
    content = _published()
    gain: float | None = content["robustness"]["gains"].get(
        content["printed_as"].get(row, row)
    )
    return gain


def gain_place() -> tuple[str, int]:
    """The dataset and the number of false edges of :func:`published_gain`."""
    place = _published()["robustness"]
    return place["dataset"], place["noise"]


@cache
def _published() -> dict[str, Any]:
    source = files("gsebo.experiments").joinpath("published.toml")
    return tomllib.loads(source.read_text("utf-8"))
