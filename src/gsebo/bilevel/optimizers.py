"""Inner optimisers: pure functions, so that training can be differentiated.

One inner step is ``(W_t, S_t) = update(g_t, S_{t-1}, W_{t-1})`` with the gradient
``g_t = grad_W L(W_{t-1}, Z, t)``. Weight decay belongs to the inner loss.

A step of Adam and its adjoint exist as plain operations, and fused into one pass over
memory each, for the CPU in ``adam_numba`` and for a GPU in ``adam_triton``: on small
networks most of the time of plain operations goes into starting them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.bilevel.tree import Tree, require_grad, vjp
from gsebo.errors import InvalidInput


class State(NamedTuple):
    """What an optimiser remembers: how often it stepped, and its slots (moments).

    Attributes:
        count: How often the optimiser has stepped.
        slots: Its moments, by names; empty where it has none.
    """

    count: int  # type: ignore[assignment]  # nobody needs tuple.count here
    slots: Tree


class Transition(NamedTuple):
    """One update that has happened: its arguments, and the state it returned."""

    gradients: Tree
    state: State
    weights: Tree
    new_state: State


class Cotangents(NamedTuple):
    """Derivatives with respect to one update's arguments; a missing name is zero."""

    gradients: Tree
    slots: Tree
    weights: Tree


class AdamRule(NamedTuple):
    """The parameters of Adam."""

    rate: float
    betas: tuple[float, float]
    eps: float


class Optimizer(NamedTuple):
    """A pure inner optimiser.

    Attributes:
        init: weights -> the state before the first step.
        update: (gradients, state, weights) -> (new weights, new state), all new
            tensors, made of operations that autograd can differentiate.
        pullback: (transition, cotangent of the new weights, cotangent of the new slots)
            -> cotangents of the arguments of ``update``. Only for speed: without it,
            autograd differentiates ``update``.
        adam: What the update is, if it is plain Adam, for those who take many steps in
            compiled code.
    """

    init: Callable[[Tree], State]
    update: Callable[[Tree, State, Tree], tuple[Tree, State]]
    pullback: Callable[[Transition, Tree, Tree], Cotangents] | None = None
    adam: AdamRule | None = None


def pull_back(
    optimizer: Optimizer, transition: Transition, weights: Tree, slots: Tree
) -> Cotangents:
    """Pull the cotangents of the new weights and slots back through one update."""
    if optimizer.pullback is not None:
        return optimizer.pullback(transition, weights, slots)
    gradients, state, before, _ = transition
    arguments = [require_grad(tree) for tree in (gradients, state.slots, before)]
    with torch.enable_grad():
        old_gradients, old_slots, old_weights = arguments
        old_state = State(state.count, old_slots)
        new_weights, new_state = optimizer.update(old_gradients, old_state, old_weights)
    # One dictionary, so that the graph is walked once; prefixes keep names apart.
    outputs = _prefixed(new_weights, new_state.slots)
    return Cotangents(*vjp(outputs, _prefixed(weights, slots), *arguments))


def _prefixed(weights: Tree, slots: Tree) -> Tree:
    named = {"weight/" + name: leaf for name, leaf in weights.items()}
    return named | {"slot/" + name: leaf for name, leaf in slots.items()}


def _checked_rate(learning_rate: float) -> float:
    valid = isinstance(learning_rate, Real) and math.isfinite(learning_rate)
    if not valid or learning_rate < 0:
        raise InvalidInput(
            f"learning rate {learning_rate!r} given; expected a finite number >= 0."
        )
    return float(learning_rate)


def sgd(lr: float) -> Optimizer:
    """Plain gradient descent, ``W_t = W_{t-1} - lr g_t``, with a finite ``lr >= 0``.

    Args:
        lr: Learning rate.
    """
    rate = _checked_rate(lr)

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        moved = {
            name: torch.add(weight, gradients[name], alpha=-rate)
            for name, weight in weights.items()
        }
        return moved, State(state.count + 1, state.slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        return Cotangents({k: a * -rate for k, a in weights.items()}, {}, weights)

    return Optimizer(lambda weights: State(0, {}), update, pullback)


def momentum(lr: float, beta: float = 0.9) -> Optimizer:
    """Heavy ball, ``M_t = beta M_{t-1} + g_t`` and ``W_t = W_{t-1} - lr M_t``.

    Args:
        lr: Learning rate, finite and not negative.
        beta: Share of the last step that is kept, below 1.
    """
    rate = _checked_rate(lr)
    if not 0 <= beta < 1:
        raise InvalidInput(f"momentum beta={beta!r} given; expected a number in [0, 1)")

    def init(weights: Tree) -> State:
        return State(0, {name: torch.zeros_like(w) for name, w in weights.items()})

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        slots = {
            name: torch.add(gradient, state.slots[name], alpha=beta)
            for name, gradient in gradients.items()
        }
        moved = {
            name: torch.add(weight, slots[name], alpha=-rate)
            for name, weight in weights.items()
        }
        return moved, State(state.count + 1, slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        total = dict(slots)
        for name, a in weights.items():
            m = slots.get(name)
            total[name] = a * -rate if m is None else torch.add(m, a, alpha=-rate)
        return Cotangents(total, {k: m * beta for k, m in total.items()}, weights)

    return Optimizer(init, update, pullback)


def scheduled(optimizer: Optimizer, factor: Callable[[int], float]) -> Optimizer:
    """Multiply what each update adds to the weights by ``factor(count)``.

    For an optimiser whose moments do not read the learning rate, which are all of ours,
    this is the learning rate times the factor. ``count`` is the number of updates
    before this one, 0 at first.

    Args:
        optimizer: What makes the steps.
        factor: From the number of updates before this one to what it is multiplied by.

    >>> from gsebo.bilevel import sgd
    >>> halving = scheduled(sgd(1.0), lambda count: 0.5**count)
    >>> weights = {"w": torch.tensor(4.0)}
    >>> state = halving.init(weights)
    >>> for _ in range(2):
    ...     weights, state = halving.update({"w": torch.tensor(1.0)}, state, weights)
    >>> float(weights["w"])
    2.5
    """

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        moved, after = optimizer.update(gradients, state, weights)
        share = factor(state.count)
        scaled = {
            name: torch.lerp(weight, moved[name], share)
            for name, weight in weights.items()
        }
        return scaled, after

    return Optimizer(optimizer.init, update)


def clipped(optimizer: Optimizer, max_norm: float) -> Optimizer:
    """Shrink the gradients, all by one factor, to a norm of at most ``max_norm``.

    Args:
        optimizer: What makes the steps.
        max_norm: The largest norm that all gradients together may have.
    """
    number = isinstance(max_norm, Real) and not isinstance(max_norm, bool)
    if not number or not math.isfinite(max_norm) or max_norm <= 0:
        raise InvalidInput(
            f"max_norm={max_norm!r} given; expected a finite number above 0."
        )

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        each = [torch.linalg.vector_norm(leaf) for leaf in gradients.values()]
        norm = torch.linalg.vector_norm(torch.stack(each))
        # As torch.nn.utils.clip_grad_norm_: a norm of zero divides nothing.
        shrink = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        small = {name: leaf * shrink for name, leaf in gradients.items()}
        return optimizer.update(small, state, weights)

    return Optimizer(optimizer.init, update)


def adam(
    lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Optimizer:
    """Adam (Kingma and Ba, 2015), step for step ``torch.optim.Adam``, without decay.

        M_t = b1 M_{t-1} + (1 - b1) g_t
        V_t = b2 V_{t-1} + (1 - b2) g_t^2
        W_t = W_{t-1} - s M_t / (sqrt(V_t) / c + eps)

    with ``s = lr / (1 - b1^t)`` and ``c = sqrt(1 - b2^t)``. Where ``V_t = 0`` the
    derivative of the root is taken as 0: every gradient so far was 0 there, so
    ``M_t = 0`` as well, and the factor ``M_t`` in front of that derivative removes it.

    Args:
        lr: learning rate, finite and not negative.
        betas: decay of the first and of the second moment, each in [0, 1).
        eps: added to the root, positive.
    """
    rule = AdamRule(_checked_rate(lr), betas, eps)
    first, second = betas
    if not (0 <= first < 1 and 0 <= second < 1 and eps > 0):
        raise InvalidInput(
            f"Adam betas={betas!r}, eps={eps!r} given; "
            "expected both betas in [0, 1) and eps > 0."
        )

    def init(weights: Tree) -> State:
        slots = [(slot, leaf) for n, leaf in weights.items() for slot in slots_of(n)]
        return State(0, {slot: torch.zeros_like(leaf) for slot, leaf in slots})

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        count = state.count + 1
        scales = Scales.at(count, rule)
        moved: Tree = {}
        slots: Tree = {}
        for name, weight in weights.items():
            moments = [state.slots[slot] for slot in slots_of(name)]
            tensors = (weight, gradients[name], *moments)
            moved[name], *after = adam_kernels_for(*tensors).step(tensors, scales)
            slots |= zip(slots_of(name), after, strict=True)
        return moved, State(count, slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        count, after = transition.new_state
        scales = Scales.at(count, rule)
        to_gradients: Tree = {}
        to_slots: Tree = {}
        # Moments only matter through the weights that they will move, so that none has
        # a cotangent whose weight has not.
        for name, cotangent in weights.items():
            moments = [after[slot] for slot in slots_of(name)]
            later = [slots[slot] for slot in slots_of(name) if slot in slots]
            tensors = (cotangent, transition.gradients[name], *moments, *later)
            kernels = adam_kernels_for(*tensors)
            to_gradients[name], *before = kernels.step_back(tensors, scales)
            to_slots |= zip(slots_of(name), before, strict=True)
        return Cotangents(to_gradients, to_slots, weights)

    return Optimizer(init, update, pullback, rule)


def slots_of(name: str) -> tuple[str, str]:
    """Where both moments of a weight are, or their cotangents."""
    return "mean/" + name, "square/" + name


class Scales(NamedTuple):
    """The plain numbers of one step; the bias corrections depend on its number."""

    first: float  # b1
    second: float  # b2
    new_first: float  # 1 - b1, not to be rounded twice
    new_second: float  # 1 - b2
    step_size: float  # s
    root: float  # c
    eps: float

    @classmethod
    def at(cls, count: int, rule: AdamRule) -> Scales:
        """The numbers of step ``count``, from 1."""
        rate, (first, second), eps = rule
        size, root = rate / (1 - first**count), math.sqrt(1 - second**count)
        return cls(first, second, 1 - first, 1 - second, size, root, eps)


Kernel = Callable[[Sequence[Tensor], Scales], Sequence[Tensor]]


class AdamKernels(NamedTuple):
    """A step of Adam and its adjoint.

    With ``D = sqrt(V) + c eps`` and ``f = s c`` the step is ``W - f M / D``, hence from
    ``a``, the cotangent of the new weights,

        cotangent of M  +=  -f a / D
        cotangent of V  +=  f a M / (2 D^2 sqrt(V))

    and both are left out where ``M = V = 0``: a weight that never had a gradient passes
    nothing on but to itself, by weight decay, and there it would grow by ``1 / eps`` in
    every step until it overflows.

    Attributes:
        step: (weight, gradient, M, V) -> the next weight, M and V.
        step_back: (``a``, gradient, new M, new V), and the cotangents of both from
            later steps if there are any -> cotangents of the gradient, M and V.
    """

    step: Kernel
    step_back: Kernel


def _plain_step(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    weight, gradient, mean, square = tensors
    mean = torch.lerp(mean, gradient, scales.new_first)
    square = (square * scales.second).addcmul_(
        gradient, gradient, value=scales.new_second
    )
    if square.requires_grad:
        # Derivative 0 at 0. Not "square > 0", which would turn NaN into 0.
        zero = square == 0
        root = square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
    else:
        root = square.sqrt()
    divisor = (root / scales.root).add_(scales.eps)
    moved = torch.addcdiv(weight, mean, divisor, value=-scales.step_size)
    return moved, mean, square


def _plain_step_back(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    cotangent, gradient, mean, square, *later = tensors
    factor, shift = scales.step_size * scales.root, scales.eps * scales.root
    root = square.sqrt()
    divisor = root + shift
    quotient = cotangent / divisor
    quotient.masked_fill_((square == 0) & (mean == 0), 0)
    by_mean = quotient * -factor
    # As M sqrt(V) / (D V) the quotient is 0 where V = 0 and NaN where V is NaN, with no
    # mask (slower than all the rest). The bound only acts where sqrt(V) << eps, and
    # there the cotangent of M outweighs this one by eps / sqrt(V).
    divisor.mul_(square).clamp_min_(torch.finfo(root.dtype).tiny)
    by_square = quotient.mul_(mean).mul_(root).div_(divisor).mul_(factor / 2)
    if later:
        by_mean += later[0]
        by_square += later[1]
    to_gradient = (by_mean * scales.new_first).addcmul_(
        gradient, by_square, value=2 * scales.new_second
    )
    return to_gradient, by_mean.mul_(scales.first), by_square.mul_(scales.second)


PLAIN_ADAM = AdamKernels(_plain_step, _plain_step_back)


def adam_kernels_for(*tensors: Tensor) -> AdamKernels:
    """The fastest that can be used on these tensors."""
    numbers = all(
        tensor.dtype in (torch.float32, torch.float64)
        and tensor.is_contiguous()
        and tensor.device == tensors[0].device
        and not (tensor.requires_grad and torch.is_grad_enabled())
        for tensor in tensors
    )
    return _fused_on(tensors[0].device.type) if numbers else PLAIN_ADAM


@cache
def _fused_on(device: str) -> AdamKernels:
    if device == "cpu":
        from gsebo.bilevel.adam_numba import NUMBA_ADAM

        return NUMBA_ADAM
    if device == "cuda" and find_spec("triton") is not None:
        from gsebo.bilevel.adam_triton import TRITON_ADAM

        return TRITON_ADAM
    return PLAIN_ADAM
