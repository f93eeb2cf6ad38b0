"""Inner training without recording: the forward half of every engine but unrolled."""

import torch
from torch import Tensor

from gsebo.bilevel.autodiff import gradient
from gsebo.bilevel.hypergradient import Iterate
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, detach, filled, require_grad


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


def descend(
    problem: BilevelProblem,
    optimizer: Optimizer,
    iterate: Iterate,
    outer: Tree,
    steps: int,
) -> tuple[Iterate, list[Tensor]]:
    """Take inner steps with fixed ``Z``; return the last iterate and the losses."""
    outer = detach(outer)
    losses = []
    for _ in range(steps):
        leaves = require_grad(iterate.weights)
        gradients, loss = inner_gradient(problem, leaves, outer, iterate.step)
        iterate = advance(optimizer, iterate, gradients)
        losses.append(loss)
    return iterate, losses


def outer_gradient(
    problem: BilevelProblem, weights: Tree, outer: Tree, *, direct_term: bool
) -> tuple[Tensor, Tree, Tree]:
    """Evaluate the outer loss and its two partial derivatives.

    Returns:
        The detached ``F(W, Z)``, ``partial F/partial W`` and ``partial F/partial Z``;
        in both trees a missing name means zero, and without the direct term the
        second is empty.
    """
    weights = require_grad(weights)
    outer = require_grad(outer) if direct_term else detach(outer)
    with torch.enable_grad():
        loss = problem.outer_loss(weights, outer)
    by_weights, by_outer = gradient(loss, weights, outer if direct_term else {})
    return loss.detach(), by_weights, by_outer
