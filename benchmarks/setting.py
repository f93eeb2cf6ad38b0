"""What is trained, and how: one setting means the same for every contender."""

from dataclasses import dataclass

BACKBONES = ("gcn", "gat", "sage", "jk")
LAYERS = 2


@dataclass(frozen=True)
class Setting:
    """Everything that a measurement depends on besides the graph.

    Attributes:
        backbone: One of ``BACKBONES``, with ``LAYERS`` layers.
        hidden: Width of the hidden layer; of each of the eight heads for ``gat``.
        tau: Number of inner steps per outer step.
        optimizer: Of the inner steps, ``"adam"`` or ``"sgd"``.
        dropout: Rate of dropout in the inner steps.
        direct_term: Whether the outer loss also depends on the strengths directly.
        inner_rate: Learning rate of the weights.
        outer_rate: Learning rate of the strengths.
        weight_decay: L2 penalty of the weights.
        seed: Of the initial weights and of dropout.
        device: Where to compute.
    """

    backbone: str = "gcn"
    hidden: int = 16
    tau: int = 10
    optimizer: str = "adam"
    dropout: float = 0.5
    direct_term: bool = False
    inner_rate: float = 0.01
    outer_rate: float = 0.01
    weight_decay: float = 5e-4
    seed: int = 0
    device: str = "cpu"
