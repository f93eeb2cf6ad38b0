"""The backbone on the given graph, trained as usual."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch_geometric.data import Data

from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.schedule import train_on_fixed_structure


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Vanilla(EpochClassifier):
    """The network as its authors meant it: the baseline of every comparison."""

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        return train_on_fixed_structure(data, runs, self.network(), self.schedule())
