"""How the structure moves once its hypergradient is known.

Two ways, one interface. The paper's is a learning rate times the gradient of a sum over
validation nodes: what is a small step on one graph moves every strength by many times
its size on another. The trust region measures a step in units that mean the same on
every graph, limits it, and takes back what did harm:

    u = (Z - Z0) / unit               relative: a strength that doubles moves by one
    g = unit · dF/dZ                  the derivative by u
    a = min(r / rms(g), r · F / Σg²)  as far as one may go, as much as one may promise
    Z ← project(Z - a · unit · g)

The first limit is the length of the step: a root mean square of r over the entries that
the labels say anything about. The second is what the step promises to take off the
outer loss, to first order: a promise of more than a share r of it will not be kept. If
the loss rises above all of the last ten, the last step is undone and r halved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, State, Tree

OuterStepName = Literal["trust", "paper"]

_PREVIOUS = "previous."
_RECENT = "recent"
_RADIUS = "radius"
_REMEMBERED = 10
# The steps that limits are meant for; where more inner steps are differentiated through
# there are fewer outer ones, and each may go farther.
_USUAL_INNER_STEPS = 10
# Sums of squares are made of whole numbers of this size: such a sum is the same in any
# order, for any number of threads and processes.
_FIXED_POINT = 2.0**30


@dataclass(frozen=True)
class Found:
    """What is known when the structure is about to move.

    Attributes:
        gradient: Of the outer loss, named and shaped as the structure's parameters.
        loss: The outer loss, ``[]``, or ``[runs]`` where all else has such an axis too.
        units: What counts as one, by the names of the parameters, in their shape or
            one that broadcasts to it; a missing name: one is one.
        project: To the nearest allowed parameters.
        by_holder: From a tensor to those of all processes that hold shares of the
            parameters, on a new first axis.
    """

    gradient: Tree
    loss: Tensor
    units: Tree
    project: Callable[[Tree], Tree]
    by_holder: Callable[[Tensor], Tensor] = lambda numbers: numbers.unsqueeze(0)


class OuterStep(ABC):
    """Moves the parameters of a structure."""

    @abstractmethod
    def init(self, outer: Tree) -> State:
        """What is remembered before the first step."""

    @abstractmethod
    def slots_of(self, name: str) -> tuple[str, ...]:
        """Names of the slots that are shaped as the parameter called ``name``."""

    @abstractmethod
    def update(self, found: Found, state: State, outer: Tree) -> tuple[Tree, State]:
        """Return the parameters after the step, and what to remember."""


@final
class OptimizerStep(OuterStep):
    """The step that an optimiser makes of the gradient, whatever the loss does."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def init(self, outer: Tree) -> State:
        return self._optimizer.init(outer)

    def slots_of(self, name: str) -> tuple[str, ...]:
        return tuple(self._optimizer.init({name: torch.zeros(1)}).slots)

    def update(self, found: Found, state: State, outer: Tree) -> tuple[Tree, State]:
        moved, state = self._optimizer.update(found.gradient, state, outer)
        return found.project(moved), state


@final
class TrustRegion(OuterStep):
    """Relative steps, limited in length and in promise, undone where they did harm.

    Args:
        radius: Both limits, as shares: of the strengths and of the loss.
        inner_steps: Inner steps for each outer one.
    """

    def __init__(self, radius: float, inner_steps: int = _USUAL_INNER_STEPS) -> None:
        self._radius = radius * max(1.0, inner_steps / _USUAL_INNER_STEPS)

    def init(self, outer: Tree) -> State:
        """Nothing to undo, and no loss to compare with."""
        like = next(iter(outer.values()), torch.zeros(()))
        slots = {_PREVIOUS + name: leaf.clone() for name, leaf in outer.items()}
        slots[_RECENT] = like.new_full((_REMEMBERED,), _unseen(like))
        slots[_RADIUS] = like.new_tensor(self._radius)
        return State(0, slots)

    def slots_of(self, name: str) -> tuple[str, ...]:
        return (_PREVIOUS + name,)

    @torch.no_grad()
    def update(self, found: Found, state: State, outer: Tree) -> tuple[Tree, State]:
        """Go as far as both limits allow, or back."""
        slots = state.slots
        recent, radius, loss = slots[_RECENT], slots[_RADIUS], found.loss
        worse = ~(loss <= recent.amax(-1))
        length = self._length(found, radius)
        moved = {}
        for name, leaf in outer.items():
            unit = found.units.get(name)
            step = found.gradient[name] * _beside(length, leaf)
            moved[name] = leaf - (step if unit is None else step * unit * unit)
        moved = found.project(moved)
        after: Tree = {}
        kept: Tree = {}
        for name, leaf in outer.items():
            back, previous = _beside(worse, leaf), slots[_PREVIOUS + name]
            after[name] = torch.where(back, previous, moved[name])
            kept[_PREVIOUS + name] = torch.where(back, previous, leaf)
        latest = torch.cat([recent[..., 1:], loss.to(recent).unsqueeze(-1)], -1)
        # After going back, ten losses have to be seen before the next judgement.
        kept[_RECENT] = torch.where(worse.unsqueeze(-1), _unseen(recent), latest)
        kept[_RADIUS] = torch.where(worse, radius / 2, radius)
        return after, State(state.count + 1, kept)

    def _length(self, found: Found, radius: Tensor) -> Tensor:
        """What to multiply the gradient by, ``[]`` or ``[runs]``."""
        scaled = [
            leaf if found.units.get(name) is None else leaf * found.units[name]
            for name, leaf in found.gradient.items()
        ]
        flat = [leaf.reshape(*radius.shape, -1) for leaf in scaled]
        full = [leaf for leaf in flat if leaf.shape[-1]]
        largest = radius.new_zeros(radius.shape)
        for leaf in full:
            largest = torch.maximum(largest, leaf.abs().amax(-1).to(largest))
        largest = found.by_holder(largest).amax(0).double()
        known = largest > 0
        one = torch.where(known, largest, 1.0)
        squares = torch.zeros_like(largest, dtype=torch.int64)
        moving = torch.zeros_like(squares)
        for leaf in full:
            share = leaf.double() / one.unsqueeze(-1)
            squares += (share * share * _FIXED_POINT).long().sum(-1)
            moving += leaf.count_nonzero(-1)
        squares, moving = found.by_holder(torch.stack([squares, moving])).sum(0)
        # Relative to the largest, so that nothing overflows whatever the gradient.
        sum_of_squares = squares.double() / _FIXED_POINT
        by_length = radius * (moving / sum_of_squares).sqrt() / one
        by_promise = radius * found.loss.double() / sum_of_squares / one / one
        length = torch.minimum(by_length, by_promise)
        return torch.where(known & length.isfinite(), length, 0.0).to(radius)


def _unseen(like: Tensor) -> float:
    """Stands for a loss that was not seen: above all others, and still a number."""
    return torch.finfo(like.dtype).max


def _beside(numbers: Tensor, leaf: Tensor) -> Tensor:
    """Give a number for each run the axes of a parameter."""
    return numbers.reshape(*numbers.shape, *[1] * (leaf.dim() - numbers.dim()))
