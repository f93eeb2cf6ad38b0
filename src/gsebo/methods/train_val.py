"""The control for labels: the plain network, taught with the validation labels too."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch_geometric.data import Data

from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.schedule import train_on_fixed_structure
from gsebo.training.stopping import SelectBy


@final
@dataclass(kw_only=True, eq=False, repr=False)
class TrainVal(EpochClassifier):
    """What the validation labels are worth without any structure learning.

    A method that learns from the validation nodes has more labels than the vanilla
    network. This one has as many: it is trained on the training and the validation
    nodes for a fixed number of epochs, and no node is left to select a step by.
    """

    select_by: SelectBy = "last"

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        labelled = copy.copy(data)
        labelled.train_mask = data.train_mask | data.val_mask
        return train_on_fixed_structure(labelled, runs, self.network(), self.schedule())
