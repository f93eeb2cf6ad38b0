"""The methods by name: one line each."""

from dataclasses import dataclass

from gsebo.methods.base import GraphClassifier
from gsebo.methods.frozen import Frozen
from gsebo.methods.gsebo import GSEBO
from gsebo.methods.vanilla import Vanilla


@dataclass(frozen=True)
class MethodInfo:
    """What ``gsebo list methods`` shows."""

    estimator: type[GraphClassifier]
    description: str
    paper: str


METHODS: dict[str, MethodInfo] = {
    "gsebo": MethodInfo(
        GSEBO,
        "edge strengths by the hypergradient of validation loss",
        "Graph Structure Learning with Bi-level Optimization",
    ),
    "vanilla": MethodInfo(Vanilla, "the backbone on the given graph", "-"),
    "frozen": MethodInfo(
        Frozen, "control: GSEBO's schedule, structure fixed", "arXiv 2605.07577"
    ),
}
