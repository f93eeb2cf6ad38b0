"""What nodes without labels teach: predictions should not hang on chance.

In each training step a network is run several times, each time with other dropout. The
loss of the labels is the mean over these views; beside it stands how far the views of
each node, labelled or not, are from what all of them say together, sharpened:

    R = mean over views s and nodes i of | p_i^s - q_i |²,
    q_i = normalised (mean over views of p_i^s)^(1/T),    a step does not move q.

Its weight grows from nothing during the warm-up, because what an untrained network
says of a node should not be made sharper. See Feng et al., "Graph Random Neural
Networks for Semi-Supervised Learning on Graphs", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

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
        nodes: Tensor | None = None,
    ) -> Tensor:
        """Loss of the labels, mean over views, and the weighted disagreement.

        Args:
            logits_with: Runs the network with some dropout: scores of all nodes.
            loss_of: Loss of such scores at the labelled nodes.
            noise: Names the step.
            nodes: Numbers of those that teach; ``None``: all.
        """
        step = noise.step
        views = [
            logits_with(Noise(noise.seed, step * self.views + number))
            for number in range(self.views)
        ]
        total = torch.stack([loss_of(view) for view in views]).mean()
        share = min(1.0, (step + 1) / self.warmup)
        scores = torch.stack(views)
        if nodes is not None:
            scores = scores.index_select(1, nodes)
        probability = scores.softmax(-1)
        return total + self.weight * share * self.disagreement(probability)

    def disagreement(self, probability: Tensor) -> Tensor:
        """R of probabilities ``[views, nodes, classes]``."""
        together = probability.mean(0)
        # By logarithms, because a small number to a high power is nothing.
        sharp = (together.clamp(min=1e-30).log() / self.temperature).softmax(-1)
        return _disagreement(probability, sharp)


class _Disagreement(torch.autograd.Function):
    """Squared distance from what views are drawn to, which does not move itself.

    That it stands still is part of what a step is, so only the step's own derivative
    leaves it out: where a step is differentiated, it is known that it depends on the
    weights. To detach it would be wrong there.
    """

    @staticmethod
    def forward(ctx: Any, probability: Tensor, drawn_to: Tensor) -> Tensor:
        ctx.save_for_backward(probability, drawn_to)
        return (probability - drawn_to).square().sum(-1).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        probability, drawn_to = ctx.saved_tensors
        count = probability.shape[:-1].numel()
        return gradients[0] * 2 / count * (probability - drawn_to), None


def _disagreement(probability: Tensor, drawn_to: Tensor) -> Tensor:
    found: Tensor = _Disagreement.apply(probability, drawn_to)  # type: ignore[no-untyped-call]
    return found
