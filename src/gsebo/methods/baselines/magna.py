"""MAGNA: attention that reaches several hops in every layer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, final

from msgspec import Meta
from torch import nn

from gsebo.bilevel import Optimizer, clipped, make_optimizer, scheduled
from gsebo.graph.graph import Graph
from gsebo.methods.base import Run
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import Rate, ShareBelowOne, Steps, Width
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.schema import Count
from gsebo.training.history import SelectBy

_Norm = Annotated[float, Meta(gt=0, description="a finite number above 0")]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class MAGNA(EpochClassifier):
    """Attention diffused over several hops (Wang et al., IJCAI 2021).

    A network of its own, on the graph as it is given; ``backbone_options`` are those of
    :class:`~gsebo.nn.MAGNANet` (heads, hops, teleport, top_k, ...). All defaults
    are the published ones. The learning rate falls along a cosine, and the norm of the
    gradient is clipped.

    Args:
        backbone: ``"magna"``.
        hidden_channels: Width of each block, a multiple of the number of heads.
        num_layers: Number of blocks.
        dropout: Rate of dropout on what each hop and each half of a block gives.
        inner_lr: Learning rate of the weights at the first step.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        max_epochs: Number of training steps at most.
        patience: Looks without a better one before stopping.
        select_by: Keep the step with the best validation ``"loss"`` or ``"accuracy"``,
            or the ``"last"``.
        final_lr: Learning rate after ``max_epochs`` steps.
        max_norm: Largest norm of the gradient.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("magna",)

    backbone: str | type | nn.Module = field(default="magna", kw_only=False)
    hidden_channels: Width = 512
    dropout: ShareBelowOne = 0.25
    inner_lr: Rate = 2e-4
    weight_decay: Rate = 1e-5
    max_epochs: Steps = 600
    patience: Count = 300
    select_by: SelectBy = "accuracy"
    final_lr: Rate = 1e-8
    max_norm: _Norm = 1.0

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        schedule = self.schedule(self._optimizer())
        return train_on_fixed_structure(data, runs, self.network(), schedule)

    def _optimizer(self) -> Optimizer:
        falling = scheduled(
            make_optimizer(self.inner_optimizer, self.inner_lr),
            cosine(self.inner_lr, self.final_lr, self.max_epochs),
        )
        return clipped(falling, self.max_norm)


def cosine(first: float, final: float, steps: int) -> Callable[[int], float]:
    """Factor on ``first`` that moves it to ``final`` along half a wave.

    >>> factor = cosine(2.0, 1.0, 10)
    >>> [round(factor(count), 3) for count in (0, 5, 10)]
    [1.0, 0.75, 0.5]
    """
    # Whatever the factor on a learning rate of zero.
    lowest = final / first if first else 1.0

    def factor(count: int) -> float:
        return lowest + (1 - lowest) * (1 + math.cos(math.pi * count / steps)) / 2

    return factor
