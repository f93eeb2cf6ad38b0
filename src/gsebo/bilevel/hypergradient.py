"""What a hypergradient is: how to differentiate an outer loss through training."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, final

from torch import Tensor

from gsebo.bilevel.optimizer import Optimizer, State
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, detach
from gsebo.errors import InvalidInput


class Iterate(NamedTuple):
    """Where inner training stands.

    Attributes:
        weights: the inner variables ``W``.
        state: what the optimiser remembers.
        step: the number of the next inner step.
    """

    weights: Tree
    state: State
    step: int


class HypergradientStep(NamedTuple):
    """What one call of an engine gives.

    Attributes:
        gradient: ``dF(W_tau(Z), Z) / dZ``, named and shaped as ``Z``.
        iterate: where inner training stands after the steps, without any graph.
        outer_loss: ``F(W_tau, Z)``, detached.
        inner_losses: ``L`` before each of the steps, detached.
    """

    gradient: Tree
    iterate: Iterate
    outer_loss: Tensor
    inner_losses: list[Tensor]


class Hypergradient(ABC):
    """The derivative of ``F(W_tau(Z), Z)`` with respect to ``Z``.

        dF/dZ = [direct term] partial F/partial Z  +  partial F/partial W . dW_tau/dZ

    Attributes:
        direct_term: whether the first summand is included. GSEBO's Algorithm 1 leaves
            it out: with it an edge can memorise the label of its validation node.
        by_derivatives: whether an engine only asks for ``Derivatives``. Such an engine
            can treat several problems as one, with a leading axis in all trees.
    """

    direct_term: bool
    by_derivatives: ClassVar[bool] = False

    @abstractmethod
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        """Train for some steps, then differentiate the outer loss through them.

        Args:
            problem: the two losses.
            optimizer: makes the inner steps.
            iterate: where inner training stands; it is not changed.
            outer: the outer variables ``Z``; they are not changed.
            steps: ``tau``, the number of inner steps, at least 1.
        """

    @final
    def __call__(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        weights: Tree,
        outer: Tree,
        steps: int,
    ) -> tuple[Tree, Tree, Tensor]:
        """Run from a fresh optimiser; return (gradient, new weights, outer loss)."""
        start = begin(optimizer, weights)
        result = self.run(problem, optimizer, start, outer, steps)
        return result.gradient, result.iterate.weights, result.outer_loss


def begin(optimizer: Optimizer, weights: Tree, *, step: int = 0) -> Iterate:
    """Return the iterate before any training, with a fresh optimiser state."""
    weights = detach(weights)
    return Iterate(weights, optimizer.init(weights), step)


def require_steps(steps: int) -> None:
    """Refuse to differentiate through no step at all."""
    if steps < 1:
        raise InvalidInput(f"{steps!r} inner steps given; expected at least 1.")
