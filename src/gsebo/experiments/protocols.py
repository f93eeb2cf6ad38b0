"""How fitted models are attacked, by name: what a recipe calls ``evasion``."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvasionProtocol:
    """Two attacks on a fitted model by somebody who knows it and all labels.

    The first has one budget for the whole graph and is aimed at all test nodes. The
    second attacks some test nodes, each on its own in a graph of its own.

    Attributes:
        global_percent: Budget of the first, in percent of the edges.
        global_epochs: Steps of the first.
        local_percent: Budget of the second, in percent of the node's edges.
        local_epochs: Steps of the second, for each node.
        extreme_nodes: How many nodes are attacked of those that the model is surest
            of, and how many of those that it is least sure of; of both only nodes that
            it predicts rightly.
        random_nodes: How many others are drawn by the trial's seed, right or wrong.
    """

    global_percent: int = 10
    global_epochs: int = 125
    local_percent: int = 100
    local_epochs: int = 30
    extreme_nodes: int = 10
    random_nodes: int = 20


EVASIONS: dict[str, EvasionProtocol] = {"adaptive": EvasionProtocol()}
"""What ``evasion`` in a recipe may be."""
