"""The bilevel problem in plain tensors, for those who do not use gsebo."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """One graph with its labels, and where training starts.

    Entries are the edges in gsebo's order and then, where the network has them, the
    self-loops in node order, so that hypergradients can be compared number by number.

    Attributes:
        x: Features, dense, ``[nodes, features]``.
        edge_index: Source and target of each entry, ``[2, entries]``.
        strength: Initial strength of each entry, ``[entries]``.
        labels: Class of each node, ``[nodes]``.
        train: Nodes of the inner loss.
        validation: Nodes of the outer loss.
        num_classes: Number of classes.
        weights: Initial weights by gsebo's names.
    """

    x: Tensor
    edge_index: Tensor
    strength: Tensor
    labels: Tensor
    train: Tensor
    validation: Tensor
    num_classes: int
    weights: dict[str, Tensor]
