"""What has to be remembered of inner training to walk back through it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, final

from gsebo.bilevel.hypergradient import Iterate
from gsebo.bilevel.inner import advance
from gsebo.bilevel.optimizer import Optimizer, Transition
from gsebo.bilevel.tree import Tree


class PastStep(NamedTuple):
    """One step that was taken, and its number."""

    transition: Transition
    number: int


@final
class Trajectory:
    """The last steps of training, to be read backwards once.

    An iterate holds the weights and, for Adam, twice as much again. So all gradients
    are stored but only every so many iterates (the square root of their number): the
    others follow by taking the optimiser's steps again, which is exact and costs little
    beside a gradient.

    Args:
        optimizer: The one that makes the steps.
        steps: How many steps will be taken.
        horizon: How many of the last ones are to be remembered; None is all.
    """

    def __init__(self, optimizer: Optimizer, steps: int, horizon: int | None) -> None:
        self._optimizer = optimizer
        kept = min(horizon or steps, steps)
        self._forgotten = steps - kept
        self._stride = max(math.isqrt(kept), 1)
        self._anchors: list[Iterate] = []
        self._segments: list[deque[Tree]] = []
        self._taken = 0

    def append(self, iterate: Iterate, gradients: Tree) -> None:
        """Remember a step by the iterate before it and the gradient there."""
        place = self._taken - self._forgotten
        self._taken += 1
        if place < 0:
            return
        if place % self._stride == 0:
            self._anchors.append(iterate)
            self._segments.append(deque())
        self._segments[-1].append(gradients)

    def backwards(self, end: Iterate) -> Iterator[PastStep]:
        """Yield the steps from the last to the first, forgetting each on the way.

        Args:
            end: The iterate after the last step.
        """
        after = end.state
        while self._anchors:
            iterates, gradients = [self._anchors.pop()], self._segments.pop()
            for gradient in list(gradients)[:-1]:
                iterates.append(advance(self._optimizer, iterates[-1], gradient))
            while iterates:
                before = iterates.pop()
                yield PastStep(
                    Transition(gradients.pop(), before.state, before.weights, after),
                    before.step,
                )
                after = before.state
