"""How wide the input of each layer of a network is."""

import torch
from torch import Tensor

from gsebo.backbone.base import Features
from gsebo.training.task import Task


@torch.no_grad()
def layer_input_widths(task: Task) -> list[int]:
    """Width of what each layer propagates, by running the network once.

    Args:
        task: With a network that asks for strengths layer by layer.
    """
    pattern = task.graph.pattern
    vanilla = task.backbone.initial_strength(pattern)
    widths: list[int] = []

    def recorded(layer: int, h: Features) -> Tensor:
        widths.append(h.shape[1])
        return vanilla

    task.logits(task.initial_weights(), pattern, recorded, None)
    return widths
