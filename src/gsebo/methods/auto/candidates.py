"""The methods that an automatic fit chooses from, with the parameters they share."""

from dataclasses import dataclass
from typing import Any, final

from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph
from gsebo.lookup import own_name
from gsebo.methods.base import GraphClassifier, Run
from gsebo.methods.controls import TrainVal
from gsebo.methods.outcome import Outcome
from gsebo.methods.schedule import EpochClassifier

PLAIN = ("vanilla", "mlp")
"""Networks without structure learning: the length of their training is chosen, and then
they are trained on all labels."""

_OF_ALL: tuple[str, ...] = (
    "backbone",
    "hidden_channels",
    "num_layers",
    "dropout",
    "inner_lr",
    "inner_optimizer",
    "weight_decay",
    "outer_step",
    "backbone_options",
    "device",
    "random_state",
)
# Other loops count in other steps, and have a patience of their own.
_OF_EPOCHS = ("max_epochs", "evaluate_every", "patience", "select_by")
# So many epochs leave every method as long as it is by default.
_FULL_LENGTH = 1000


def candidate_names(text: str) -> list[str]:
    """Read ``"vanilla,mlp"``; the names have to be those of methods."""
    from gsebo.methods.registry import METHODS

    others = {name: info for name, info in METHODS.items() if name != "auto"}
    parts = text.split(",") if isinstance(text, str) else []
    names = [own_name("method", part, others) for part in parts if part.strip()]
    if not names or len(set(names)) < len(names):
        raise InvalidInput(
            f"methods={text!r} given; expected different names of methods with commas "
            "between them, such as 'vanilla,mlp'."
        )
    return names


def refits(method: str) -> bool:
    """Whether a method trains fresh weights on the structure that it has learned."""
    from gsebo.methods.registry import METHODS

    return "refit_epochs" in METHODS[method].estimator().get_params(deep=False)


@final
@dataclass(frozen=True)
class Candidates:
    """Makes estimators that agree in everything but the method.

    Attributes:
        parameters: Of the automatic fit; each method takes those that it has.
    """

    parameters: dict[str, Any]

    def make(self, method: str, epochs: int | None = None) -> GraphClassifier:
        """The estimator of a method, as it is tried on held-out labels.

        Args:
            method: Its name.
            epochs: For how long the plain network is best trained, if that is known:
                so long are fresh weights trained on a structure that was learned.
        """
        from gsebo.methods.registry import METHODS

        estimator = METHODS[method].estimator
        own = estimator().get_params(deep=False)
        names = _OF_ALL
        if issubclass(estimator, EpochClassifier):
            names += _OF_EPOCHS
        given = {name: self.parameters[name] for name in names if name in own}
        if method == "mlp":
            given |= {"backbone": "mlp", "backbone_options": None}
        if "max_outer_steps" in own:
            share = min(1.0, self.parameters["max_epochs"] / _FULL_LENGTH)
            given["max_outer_steps"] = max(1, round(share * own["max_outer_steps"]))
        if epochs is not None and refits(method):
            given["refit_epochs"] = epochs
        return estimator(**given)

    def final(self, method: str, epochs: int | None) -> GraphClassifier:
        """The estimator that is trained on all labels in the end.

        Args:
            method: Its name.
            epochs: For how long the plain network is best trained.
        """
        chosen = self.make(method, epochs)
        if method not in PLAIN:
            return chosen
        taken = chosen.get_params(deep=False)
        return TrainVal(**{**taken, "max_epochs": epochs, "select_by": "last"})


def train(estimator: GraphClassifier, data: Graph, run: Run) -> Outcome:
    """Train an estimator within another one's fit, on a graph that was validated."""
    (outcome,) = estimator._train(data, [run])
    return outcome
