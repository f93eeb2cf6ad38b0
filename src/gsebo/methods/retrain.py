"""A fresh network on what another method has learned: the control for its training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from torch_geometric.data import Data

from gsebo.errors import InvalidInput
from gsebo.lookup import lookup
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.schedule import train_on_fixed_structure


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Retrain(EpochClassifier):
    """How good is the learned graph, without the training that learned it?

    Another method is fitted; its final structure is frozen, and a network with fresh
    weights is trained on it like the vanilla one. Where a method predicts with several
    graphs, their mean is the structure.

    Args:
        method: Name of the other method.
        method_options: Its parameters, beside those of the network, which are shared.
    """

    # Strengths that were learned may be small, and then training takes longer.
    max_epochs: int = 1000
    patience: int = 100
    method: str = "gsebo"
    method_options: dict[str, Any] | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._other(0, self.device).check_parameters()

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        outcomes = []
        for run in runs:
            other = self._other(run.seed, str(run.device))
            checkpoint = run.stage(1).checkpoint
            other.fit(data, checkpoint=checkpoint, watcher=run.watcher)
            edges, strengths = other.model_.mean_graph()
            outcomes += train_on_fixed_structure(
                data,
                [run.stage(2)],
                self.network(),
                self.schedule(),
                graph=edges,
                strengths=strengths,
            )
        return outcomes

    def _other(self, seed: int, device: str) -> GraphClassifier:
        # Not at the top: the registry names this class.
        from gsebo.methods.registry import METHODS

        options = self.method_options
        if options is not None and not isinstance(options, dict):
            raise InvalidInput(
                f"method_options={options!r} given; expected a dictionary from names "
                "to values, or None."
            )
        if not isinstance(self.method, str) or self.method == "retrain":
            raise InvalidInput(
                f"method={self.method!r} given; expected the name of another method."
            )
        estimator = lookup("method", self.method, METHODS).estimator
        own = {
            "backbone": self.backbone,
            "hidden_channels": self.hidden_channels,
            "num_layers": self.num_layers,
            "backbone_options": self.backbone_options,
            "random_state": seed,
            "device": device,
        }
        try:
            return estimator(**own | (options or {}))
        except TypeError as error:
            raise InvalidInput(
                f"method_options={options!r} given; expected parameters of "
                f"{self.method} ({error})."
            ) from error
