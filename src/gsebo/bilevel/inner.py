"""The inner gradient by autograd, and the step that is taken with it."""

import torch
from torch import Tensor

from gsebo.bilevel.autodiff import gradient
from gsebo.bilevel.hypergradient import Iterate
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, filled


def inner_gradient(
    problem: BilevelProblem,
    weights: Tree,
    outer: Tree,
    step: int,
    *,
    create_graph: bool = False,
) -> tuple[Tree, Tensor]:
    """Return ``g = grad_W L(W, Z, step)`` and the detached loss.

    Args:
        problem: holds the inner loss.
        weights: leaves that require a gradient.
        outer: what requires a gradient here is recorded if ``create_graph``.
        step: the number of the inner step.
        create_graph: whether ``g`` can be differentiated again.
    """
    with torch.enable_grad():
        loss = problem.inner_loss(weights, outer, step)
    (found,) = gradient(loss, weights, create_graph=create_graph)
    return filled(found, weights), loss.detach()


@torch.no_grad()
def advance(optimizer: Optimizer, iterate: Iterate, gradients: Tree) -> Iterate:
    """Return the next iterate, given the gradient at this one."""
    weights, state = optimizer.update(gradients, iterate.state, iterate.weights)
    return Iterate(weights, state, iterate.step + 1)
