"""What the loop asks of a problem, whatever is learned."""

from typing import Protocol

from torch import Tensor

from gsebo.bilevel import Tree


class Trainable(Protocol):
    """Something with labelled nodes whose scores can be looked at."""

    @property
    def labels(self) -> Tensor:
        """Class of each node."""
        ...

    @property
    def inner_nodes(self) -> Tensor:
        """Nodes that the weights are trained on."""
        ...

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node without noise, ``[nodes, classes]``."""
        ...

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """How many edges differ from the start, and by which factor on average.

        Args:
            outer: Parameters of the structure, with a leading axis of runs.
            runs: Number of runs.

        Returns:
            Two tensors ``[runs]``; NaN where finding out would take too long.
        """
        ...
