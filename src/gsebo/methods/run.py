"""One call of ``fit``, as methods see it."""

from typing import final

import torch
from sklearn.base import BaseEstimator
from torch_geometric.data import Data

from gsebo.data.folder import GraphFolder
from gsebo.methods.fingerprint import fingerprint
from gsebo.training import Checkpoint, Watcher


@final
class Run:
    """One call of ``fit``: its seed, device and what goes with it."""

    def __init__(
        self,
        estimator: BaseEstimator,
        data: Data | GraphFolder,
        seed: int,
        device: torch.device,
        checkpoint: Checkpoint | None,
        watcher: Watcher | None,
    ) -> None:
        self.seed = seed
        self.device = device
        self.checkpoint = checkpoint
        self.watcher = watcher
        self._estimator = estimator
        self._data = data

    def stage(self, number: int) -> "Run":
        """The same run in one of several trainings, each with its own checkpoint."""
        checkpoint = self.checkpoint and self.checkpoint.stage(number)
        return Run(
            self._estimator,
            self._data,
            self.seed,
            self.device,
            checkpoint,
            self.watcher,
        )

    def watched_by(self, watcher: Watcher | None) -> "Run":
        """The same run with another watcher, and without a checkpoint."""
        return Run(self._estimator, self._data, self.seed, self.device, None, watcher)

    def fingerprint(self) -> str:
        """Hash of graph, parameters and seed; only worth computing for a checkpoint."""
        if self.checkpoint is None:
            return ""
        parameters = self._estimator.get_params(deep=False)
        parameters["random_state"] = self.seed
        parameters.pop("device")
        # Where numbers are kept makes no difference to them either.
        parameters.pop("shard_strengths", None)
        name = type(self._estimator).__name__
        return fingerprint(name, parameters, self._data)
