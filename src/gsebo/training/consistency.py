"""What nodes without labels teach: predictions should not hang on chance.

In each training step a network is run several times, each time with other dropout. The
loss of the labels is the mean over these views; beside it stands how far the views of
each node, labelled or not, are from what all of them say together, sharpened:

    R = mean over views s and nodes i of | p_i^s - q_i |²,
    q_i = normalised (mean over views of p_i^s)^(1/T),    no derivative goes into q.

Its weight grows from nothing during the warm-up, because what an untrained network
says of a node should not be made sharper. See Feng et al., "Graph Random Neural
Networks for Semi-Supervised Learning on Graphs", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.sparse import Noise


@final
@dataclass(frozen=True)
class Consistency:
    """How much views of one step should agree.

    Attributes:
        weight: Weight of the disagreement in the loss.
        views: How often a step runs the network.
        temperature: T: the smaller, the more what all say is sharpened.
        warmup: Steps until the weight is reached.
    """

    weight: float
    views: int
    temperature: float
    warmup: int

    def loss(
        self,
        logits_with: Callable[[Noise], Tensor],
        loss_of: Callable[[Tensor], Tensor],
        noise: Noise,
    ) -> Tensor:
        """Loss of the labels, mean over views, and the weighted disagreement.

        Args:
            logits_with: Runs the network with some dropout: scores of all nodes.
            loss_of: Loss of such scores at the labelled nodes.
            noise: Names the step.
        """
        step = noise.step
        views = [
            logits_with(Noise(noise.seed, step * self.views + number))
            for number in range(self.views)
        ]
        total = torch.stack([loss_of(view) for view in views]).mean()
        share = min(1.0, (step + 1) / self.warmup)
        probability = torch.stack(views).softmax(-1)
        return total + self.weight * share * self.disagreement(probability)

    def disagreement(self, probability: Tensor) -> Tensor:
        """R of probabilities ``[views, nodes, classes]``."""
        with torch.no_grad():
            together = probability.mean(0)
            # By logarithms, because a small number to a high power is nothing.
            sharp = (together.clamp(min=1e-30).log() / self.temperature).softmax(-1)
        return (probability - sharp).square().sum(-1).mean()
