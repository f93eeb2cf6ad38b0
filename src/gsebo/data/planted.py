"""Graphs that are drawn instead of loaded, by name: ground truth for comparisons."""

from collections.abc import Callable
from dataclasses import dataclass

from torch_geometric.data import Data

from gsebo.data.generate import generate_graph


@dataclass(frozen=True)
class GeneratedInfo:
    """A graph that is the same wherever it is drawn.

    Attributes:
        description: What it is.
        make: Draws it.
    """

    description: str
    make: Callable[[], Data]


def planted() -> Data:
    """Two communities of 200 nodes; 30 % of the edges join the wrong ones.

    Features say little, so that a method has to use the edges, and gains where it can
    tell the wrong ones.
    """
    return generate_graph(
        400,
        num_classes=2,
        average_degree=8.0,
        homophily=0.7,
        num_features=32,
        feature_signal=0.25,
        split="random:10/20/70",
        seed=0,
    )


GENERATED: dict[str, GeneratedInfo] = {
    "planted": GeneratedInfo("two communities, 30 % wrong edges", planted),
}
