"""Normalisation of rows or columns as operations of torch, for devices without loops.

The formulas are those of ``gsebo.tape.cpu_norm``. Every operation writes to memory that
is there before, so that a call can be captured in a CUDA graph.
"""

from __future__ import annotations

from functools import partial
from typing import final

import torch
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.tape.backend import Gradients, StandardiseStep, StepKernels


@final
class ComposedNorm(StepKernels):
    """One lane is ``[replicas, rows, channels]``; means keep the axis they are over."""

    def __init__(self, step: StandardiseStep) -> None:
        self._z, self._epsilon = step.z, step.epsilon
        self._weight, self._tangent = (each.unsqueeze(1) for each in step.weight)
        self._dual, self._axis = step.z.shape[2] == 2, 2 if step.kind == "layer" else 1
        self._unit, self._moved, self._work = self._lane(), self._lane(), self._lane()
        self._scale, self._shrinking = self._mean_of_lane(), self._mean_of_lane()

    def _lane(self) -> Tensor:
        return torch.zeros_like(self._z[:, :, 0])

    def _mean_of_lane(self) -> Tensor:
        return torch.zeros_like(self._z[:, :, 0].narrow(self._axis, 0, 1))

    def _mean(self, x: Tensor, out: Tensor) -> Call:
        return partial(torch.mean, x, self._axis, keepdim=True, out=out)

    def forward(self, out: Tensor) -> list[Call]:
        unit, moved, work = self._unit, self._moved, self._work
        scale, shrinking = self._scale, self._shrinking
        x, kept = self._z[:, :, 0], slice(0, out.shape[1])
        calls: list[Call] = [
            self._mean(x, scale),
            partial(torch.sub, x, scale, out=unit),
            partial(torch.mul, unit, unit, out=work),
            self._mean(work, scale),
            partial(scale.add_, self._epsilon),
            scale.rsqrt_,
            partial(unit.mul_, scale),
            partial(torch.mul, unit[:, kept], self._weight, out=out[:, :, 0]),
        ]
        if not self._dual:
            return calls
        tangent, to = self._z[:, :, 1], out[:, :, 1]
        return [
            *calls,
            self._mean(tangent, shrinking),
            partial(torch.sub, tangent, shrinking, out=moved),
            partial(moved.mul_, scale),
            partial(torch.mul, unit, moved, out=work),
            self._mean(work, shrinking),
            partial(moved.addcmul_, unit, shrinking, value=-1),
            partial(torch.mul, moved[:, kept], self._weight, out=to),
            partial(to.addcmul_, unit[:, kept], self._tangent),
        ]

    def back(self, gradients: Gradients) -> list[Call]:
        grad, to_z, to_weight, _, add = gradients
        assert to_weight is not None  # there is always one
        unit, moved, work, scale = self._unit, self._moved, self._work, self._scale
        kept = slice(0, grad.shape[1])
        # Rows that nobody reads have no gradient of their own: zero, once and for all.
        pulled, found = self._lane(), self._lane()
        mean, along, turned = (self._mean_of_lane() for _ in range(3))
        sums = torch.zeros_like(to_weight)
        g, last, product = grad[:, :, 0], grad[:, :, -1], work[:, kept]
        calls: list[Call] = [
            partial(torch.mul, last, unit[:, kept], out=product),
            *([partial(product.addcmul_, g, moved[:, kept])] if self._dual else []),
            partial(torch.sum, product, 1, out=sums),
            partial(to_weight.add_, sums),
            partial(torch.mul, g, self._weight, out=pulled[:, kept]),
            partial(torch.mul, pulled, unit, out=work),
            self._mean(work, along),
        ]
        if self._dual:
            calls += [
                partial(torch.mul, last, self._weight, out=found[:, kept]),
                partial(found[:, kept].addcmul_, g, self._tangent),
                partial(torch.mul, found, unit, out=work),
                partial(work.addcmul_, pulled, moved),
                self._mean(work, turned),
                self._mean(found, mean),
                partial(torch.sub, found, mean, out=work),
                partial(work.addcmul_, moved, along, value=-1),
                partial(work.addcmul_, unit, turned, value=-1),
                partial(found.copy_, work),
            ]
        calls += [
            self._mean(pulled, mean),
            partial(torch.sub, pulled, mean, out=work),
            partial(work.addcmul_, unit, along, value=-1),
        ]
        if self._dual:
            calls += [
                partial(found.addcmul_, work, self._shrinking, value=-1),
                _put(found, scale, to_z[:, :, 1], add),
                partial(found.zero_),
            ]
        return [*calls, _put(work, scale, to_z[:, :, 0], add)]


def _put(x: Tensor, scale: Tensor, to: Tensor, add: bool) -> Call:
    if add:
        return partial(to.addcmul_, x, scale)
    return partial(torch.mul, x, scale, out=to)
