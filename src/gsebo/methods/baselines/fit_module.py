"""Plain descent on any loss, for what a method prepares before its real training."""

from collections.abc import Callable

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.bilevel.tree import filled, gradient, require_grad
from gsebo.errors import InvalidInput


def minimise(
    loss_of: Callable[[Tree, int], Tensor],
    start: Tree,
    optimizer: Optimizer,
    steps: int,
) -> Tree:
    """Take steps on a loss, without selection or stopping.

    Args:
        loss_of: From parameters and the number of the step to what is minimised.
        start: The first parameters.
        optimizer: Makes the steps.
        steps: How many.

    Raises:
        InvalidInput: The parameters are not finite in the end.

    Returns:
        The last parameters.
    """
    parameters, state = start, optimizer.init(start)
    for step in range(steps):
        leaves = require_grad(parameters)
        with torch.enable_grad():
            (found,) = gradient(loss_of(leaves, step), leaves)
        with torch.no_grad():
            parameters, state = optimizer.update(
                filled(found, leaves), state, parameters
            )
    if not all(bool(leaf.isfinite().all()) for leaf in parameters.values()):
        raise InvalidInput(
            f"preparing diverged: a parameter is not finite after {steps} steps; "
            "expected a smaller learning rate or smaller features"
        )
    return parameters
