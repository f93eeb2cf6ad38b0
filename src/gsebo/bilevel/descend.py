"""Inner training at fixed outer variables: the forward half of most engines."""

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import FirstDerivatives
from gsebo.bilevel.hypergradient import Iterate
from gsebo.bilevel.inner import advance
from gsebo.bilevel.optimizer import Optimizer


@torch.no_grad()
def descend(
    derivatives: FirstDerivatives, optimizer: Optimizer, iterate: Iterate, steps: int
) -> tuple[Iterate, list[Tensor]]:
    """Take inner steps with fixed ``Z``; return the last iterate and the losses."""
    losses = []
    for _ in range(steps):
        gradients, loss = derivatives.inner_gradient(iterate.weights, iterate.step)
        iterate = advance(optimizer, iterate, gradients)
        losses.append(loss)
    return iterate, losses
