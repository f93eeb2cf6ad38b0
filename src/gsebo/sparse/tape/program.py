"""A tape, bound to memory: every run is a list of kernel calls and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import final

from torch import Tensor

from gsebo.memory import require_memory
from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.tape.bind import Binder, Call
from gsebo.sparse.tape.budget import program_bytes
from gsebo.sparse.tape.cuda_graph import GraphedCalls
from gsebo.sparse.tape.memory import Randomness, Results, Weights
from gsebo.sparse.tape.reach import Reach
from gsebo.sparse.tape.strength import StrengthBlocks
from gsebo.sparse.tape.trace import Tape


@final
class Program:
    """The cross-entropy of some nodes and its gradient by weights and strengths.

    With ``lanes=1`` a run computes the loss and its gradient by the weights (and, if
    asked for, by the strengths ``Z``). With ``lanes=2`` the weights carry a tangent
    ``v``, and a run computes the derivatives of both gradients in the direction ``v``:
    one pass gives ``v . d(grad W)/dW`` and ``v . d(grad W)/dZ``, because second
    derivatives commute. Gradients by strengths add up over runs.

    Args:
        tape: The network.
        reach: The nodes of the loss and their surroundings.
        features: Of all nodes.
        labels: Classes of the nodes of the loss, in their order; without them a run
            only computes ``output``.
        mean: Whether the loss is their mean, or else their sum.
        seeds: One seed per replica.
        lanes: 1 or 2.
        strength_gradient: Whether gradients by strengths are computed.

    Attributes:
        weights: What to load before a run, and the gradient after it.
        strengths: The same for the strengths.
        loss: Of each replica.
        output: Scores of the nodes of the loss, ``[replicas, nodes, classes]``.
    """

    def __init__(
        self,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        labels: Tensor | None,
        *,
        mean: bool,
        seeds: list[int],
        lanes: int,
        strength_gradient: bool,
    ) -> None:
        like = features if isinstance(features, Tensor) else features.values
        needed = program_bytes(
            tape,
            reach,
            stored_features=_stored(features, reach),
            replicas=len(seeds),
            lanes=lanes,
            gradients=labels is not None,
            item=like.element_size(),
        )
        require_memory(needed, like.device)
        self.weights = Weights(tape, len(seeds), lanes, like)
        self.strengths = StrengthBlocks(reach, len(seeds), like)
        self.loss = like.new_zeros(len(seeds))
        self._randomness = Randomness(seeds, like.device)
        results = Results(
            tape, reach, len(seeds), lanes, like, gradients=labels is not None
        )
        binder = Binder(
            tape,
            reach,
            features,
            self.weights,
            self.strengths,
            self._randomness,
            results,
            strength_gradient=strength_gradient,
        )
        calls = binder.forward()
        if labels is not None:
            scale = 1.0 / max(labels.numel(), 1) if mean else 1.0
            calls += binder.backward(labels, scale, self.loss)
        self._calls: CallsInTurn | GraphedCalls
        if like.device.type == "cuda":
            self._calls = GraphedCalls(calls, like.device)
        else:
            self._calls = CallsInTurn(calls)
        self.output = results.value(-1)[:, :, 0]

    def run(self, step: int = 0) -> None:
        """Compute everything for the weights and strengths that are loaded."""
        self._randomness.step.fill_(step)
        self._calls.run()

    def kernel_seconds(self, repeats: int = 20) -> float:
        """Sum over the calls of the shortest time that each took, one by one."""
        return self._calls.kernel_seconds(repeats)


@final
class CallsInTurn:
    """Calls that are made one after the other."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def run(self) -> None:
        """Make all calls."""
        for call in self._calls:
            call()

    def kernel_seconds(self, repeats: int) -> float:
        """Sum over the calls of the shortest time that each took."""
        shortest = [float("inf")] * len(self._calls)
        for _ in range(repeats):
            for number, call in enumerate(self._calls):
                begun = time.perf_counter()
                call()
                taken = time.perf_counter() - begun
                shortest[number] = min(shortest[number], taken)
        return sum(shortest)


def _stored(features: Tensor | SparseFeatures, reach: Reach) -> int:
    """Numbers that the features of the reached nodes hold."""
    if isinstance(features, Tensor):
        return reach.sizes[-1] * features.shape[1]
    return int(features.pattern.row_counts.index_select(0, reach.order).sum())
