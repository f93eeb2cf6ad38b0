"""The control for edges: a network that sees none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from torch import nn
from torch_geometric.data import Data

from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.schedule import train_on_fixed_structure


@final
@dataclass(kw_only=True, eq=False, repr=False)
class MLPControl(EpochClassifier):
    """What the features alone are worth.

    Where this beats the vanilla network the given edges hurt, and any method that drops
    edges looks good.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("mlp",)

    backbone: str | type | nn.Module = field(default="mlp", kw_only=False)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        return train_on_fixed_structure(data, runs, self.network(), self.schedule())
