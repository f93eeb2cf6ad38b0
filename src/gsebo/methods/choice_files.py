"""What an automatic fit decided, in a model's files."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from gsebo.data.preparation import Preparation
from gsebo.data.preparations import preparation_from
from gsebo.methods.auto import Auto
from gsebo.methods.base import GraphClassifier
from gsebo.methods.choice import Choice, Tried
from gsebo.methods.prepare import NetworkChoices

_KEY = "choice"
_TENSOR = "preparation:"


def preparation_tensors(preparation: Preparation | None) -> dict[str, Tensor]:
    """Name the tensors of a preparation, if there is one."""
    if preparation is None:
        return {}
    return {_TENSOR + name: each for name, each in preparation.tensors().items()}


def choice_facts(model: GraphClassifier) -> dict[str, Any]:
    """What of the choice is JSON; nothing for a method that makes none."""
    if not isinstance(model, Auto):
        return {}
    return {_KEY: {"tried": model.choice_, "parameters": model.chosen_parameters_}}


def network_of(model: GraphClassifier, facts: dict[str, Any]) -> NetworkChoices:
    """Which network the model holds: an automatic fit may have chosen an MLP."""
    network = model.network()
    if isinstance(model, Auto) and stored_choice(facts).chosen.candidate == "mlp":
        return replace(network, backbone="mlp", options=None)
    return network


def restore_choice(
    model: GraphClassifier, facts: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Set what an automatic fit says of its choice, and what it does to features."""
    if not isinstance(model, Auto):
        return
    choice = stored_choice(facts)
    own = {
        name.removeprefix(_TENSOR): each
        for name, each in tensors.items()
        if name.startswith(_TENSOR)
    }
    if own:
        preparation = preparation_from(choice.chosen.preparation, own)
        model.model_ = replace(model.model_, preparation=preparation)
    model.tell(choice)


def stored_choice(facts: dict[str, Any]) -> Choice:
    """The choice of an automatic fit, from its model file."""
    stored = facts[_KEY]
    tried = tuple(Tried.from_json(record) for record in stored["tried"])
    return Choice(tried, stored["parameters"])
