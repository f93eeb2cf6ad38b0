"""Many inner steps in compiled code, and the walk back through them.

What ``descend`` and ``Trajectory`` do step by step in Python, for any optimiser, is
here one list of kernel calls for all steps: a problem gives the calls for its gradient
and for the derivative of that, Adam stands in between. On a small graph a step takes
less time than Python needs to say what is to be done.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel.adam_numba import step_back_loop, step_loop
from gsebo.bilevel.derivatives import Iterate, StepsAtOnce
from gsebo.bilevel.optimizers import AdamRule, Scales, State, slots_of
from gsebo.bilevel.tree import Tree
from gsebo.sparse.numba_calls import CallList, KernelCall, bind_kernel
from gsebo.sparse.numba_compile import Variants
from gsebo.tape.cpu_sums import bind_copy, bind_scaled

# Steps are remembered, so that none has to be taken again, where they are so few or
# take so few bytes; else memory would grow with their number.
_FEW = 10
_MEMORY = 16 * 2**20


class StepCalls(ABC):
    """Kernel calls that compute a gradient, and where they read and write.

    Attributes:
        weights: Read; ``[replicas, weights]`` as all that follow.
        tangent: Read, if the derivative of the gradient in its direction is computed.
        step: Number of the step, which is read; ``[1]``.
        loss: Written, ``[replicas]``.
        drawn: What is drawn at random first, and then read.
    """

    weights: Tensor
    tangent: Tensor
    step: Tensor
    loss: Tensor
    drawn: list[Tensor]

    @abstractmethod
    def calls_to(self, gradient: Tensor, *, draw: bool = True) -> list[KernelCall]:
        """The calls, which put the gradient there; without ``draw``, those after it."""


class _Stretch(NamedTuple):
    """Steps that are remembered together."""

    taken: int  # by the optimiser, before
    number: int  # of its first step
    steps: int
    start: list[Tensor]  # weights and moments; none where they are still there


@final
class CompiledSteps(StepsAtOnce):
    """Steps of Adam on the losses of one problem, forwards and then backwards.

    Of as many steps as fit into memory all is remembered: weights, gradient, moments.
    Where more are to be walked back, only the iterate before every stretch of them is,
    and its steps are taken again, which gives the same bits.
    """

    def __init__(
        self,
        rule: AdamRule,
        training: StepCalls,
        replay: StepCalls | None,
        steps: int,
        kept: int,
    ) -> None:
        self._rule, self._training, self._replay = rule, training, replay
        weights = training.weights
        bytes_of_draw = sum(map(_bytes, training.drawn))
        length = _length_of_stretch(kept, _bytes(weights), bytes_of_draw)
        forgotten = steps - kept
        self._lengths = [
            min(length, end - at)
            for begin, end in ((0, forgotten), (forgotten, steps))
            for at in range(begin, end, length)
        ]
        self._num_forgotten = -(-forgotten // length)

        def room(places: int) -> Tensor:
            return weights.new_zeros(places, *weights.shape)

        # Weights and moments before each step and after the last, and its gradient.
        self._iterates = [room(length + 1) for _ in range(3)]
        self._gradients = room(length)
        # What a step draws is drawn again for nobody.
        self._drawn = [[each.clone() for each in training.drawn] for _ in range(length)]
        self._losses = training.loss.new_zeros(length, *training.loss.shape)
        self._numbers = torch.zeros(length, 1, dtype=torch.int64)
        self._scales = torch.zeros(length, len(Scales._fields), dtype=torch.float64)
        self._stretches: list[_Stretch] = []
        self._forwards: dict[int, CallList] = {}
        self._backwards: dict[int, CallList] = {}
        if replay is not None:
            self._alpha, self._pulled = torch.zeros_like(weights), room(1)[0]
            # What is read must not be written: one set for every other step.
            self._sigma = [[room(1)[0] for _ in range(2)] for _ in range(2)]

    @torch.no_grad()
    def train(self, iterate: Iterate) -> tuple[Iterate, list[Tensor]]:
        ((name, weights),) = iterate.weights.items()
        (count, slots), number = iterate.state, iterate.step
        self._put(weights, *(slots[slot] for slot in slots_of(name)))
        self._stretches.clear()
        losses: list[Tensor] = []
        for place, steps in enumerate(self._lengths):
            if place > 0:
                self._put(*(each[self._lengths[place - 1]] for each in self._iterates))
            start: list[Tensor] = []
            if self._num_forgotten <= place < len(self._lengths) - 1:
                start = [each[0].clone() for each in self._iterates]
            stretch = _Stretch(count, number, steps, start)
            self._take(stretch)
            found = self._losses[:steps].view(steps, *weights.shape[:-1])
            losses += found.clone().unbind(0)
            if place >= self._num_forgotten:
                self._stretches.append(stretch)
            count, number = count + steps, number + steps
        last = [each[self._lengths[-1]] for each in self._iterates]
        end, *moments = (each.view(weights.shape).clone() for each in last)
        state = State(count, dict(zip(slots_of(name), moments, strict=True)))
        return Iterate({name: end}, state, number), losses

    @torch.no_grad()
    def walk_back(self, cotangent: Tree) -> None:
        (alpha,) = cotangent.values()
        self._alpha.copy_(alpha.view(self._alpha.shape))
        for later in self._sigma[0]:
            later.zero_()
        while self._stretches:
            stretch = self._stretches.pop()
            if stretch.start:
                self._put(*stretch.start)
                self._take(stretch)
            steps = stretch.steps
            if steps not in self._backwards:
                self._backwards[steps] = CallList([*self._calls_back(steps)])
            self._backwards[steps]()
            if steps % 2 and self._stretches:
                for first, second in zip(*self._sigma, strict=True):
                    first.copy_(second)

    def _put(self, *start: Tensor) -> None:
        """Begin a stretch with weights and moments."""
        for each, tensor in zip(self._iterates, start, strict=True):
            each[0].copy_(tensor.view(each[0].shape))

    def _take(self, stretch: _Stretch) -> None:
        """Take the steps of a stretch from what was put first."""
        count, number, steps, _ = stretch
        self._numbers.numpy()[:steps, 0] = range(number, number + steps)
        after = range(count + 1, count + steps + 1)
        self._scales.numpy()[:steps] = [Scales.at(each, self._rule) for each in after]
        if steps not in self._forwards:
            self._forwards[steps] = CallList([*self._calls(steps)])
        self._forwards[steps]()

    def _calls(self, steps: int) -> Iterator[KernelCall]:
        """Calls for a stretch, the first step first."""
        training = self._training
        weights, *moments = self._iterates
        yield bind_copy(weights[0], training.weights)
        for place in range(steps):
            yield bind_copy(self._numbers[place], training.step)
            calls = training.calls_to(self._gradients[place])
            yield from self._with_draws(place, training, calls)
            yield bind_copy(training.loss, self._losses[place])
            yield _bind(
                step_loop,
                *(weights[place], self._gradients[place]),
                *(each[place] for each in moments),
                self._scales[place],
                # The next step reads the one, the walk back the other.
                *(training.weights, *(each[place + 1] for each in self._iterates)),
            )

    def _calls_back(self, steps: int) -> Iterator[KernelCall]:
        """Calls back through a stretch, the last step first."""
        replay = self._replay
        assert replay is not None  # what is kept is walked back
        weights, *moments = self._iterates
        for done, place in enumerate(reversed(range(steps))):
            yield bind_copy(self._numbers[place], replay.step)
            yield bind_copy(weights[place], replay.weights)
            yield _bind(
                step_back_loop,
                *(self._alpha, self._gradients[place]),
                *(each[place + 1] for each in moments),
                *self._sigma[done % 2],
                self._scales[place],
                *(replay.tangent, *self._sigma[1 - done % 2]),
            )
            calls = replay.calls_to(self._pulled, draw=False)
            yield from self._with_draws(place, replay, calls)
            yield bind_scaled(self._pulled, 1.0, self._alpha, add=True)

    def _with_draws(
        self, place: int, program: StepCalls, calls: list[KernelCall]
    ) -> Iterator[KernelCall]:
        """Calls that write, or read, what the step at a place has drawn."""
        pairs = zip(program.drawn, self._drawn[place], strict=True)
        others = {drawn.data_ptr(): kept for drawn, kept in pairs}
        return (call.instead(others) for call in calls)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bind(loop: Any, *tensors: Tensor) -> KernelCall:
    """A pass over flat arrays, which waits for memory and so has one thread."""
    flat = (tensor.view(-1) for tensor in tensors)
    return bind_kernel(Variants(loop, loop), 0, *flat)


def _length_of_stretch(kept: int, bytes_of_weights: int, bytes_of_draw: int) -> int:
    """How many steps are remembered at a time."""
    if kept <= _FEW or kept * (4 * bytes_of_weights + bytes_of_draw) <= _MEMORY:
        return max(kept, 1)
    # Three tensors for each stretch and four for each step of one.
    return max(math.isqrt(3 * kept // 4), 1)
