"""What scores new edges, in a model's files."""

from typing import Any

from torch import Tensor

from gsebo.backbone import Backbone
from gsebo.methods.amortised import Amortised
from gsebo.methods.amortised_extension import AmortisedExtension
from gsebo.methods.auto import Auto
from gsebo.methods.base import GraphClassifier
from gsebo.methods.choice_files import stored_choice
from gsebo.methods.fitted import FittedModel

_TENSOR = "extension:"


def extension_tensors(fitted: FittedModel) -> dict[str, Tensor]:
    """Name the tensors of a model's extension, if it has one with any."""
    if not isinstance(fitted.extension, AmortisedExtension):
        return {}
    tensors = fitted.extension.tensors()
    return {_TENSOR + name: tensor for name, tensor in tensors.items()}


def extension_from(
    model: GraphClassifier,
    facts: dict[str, Any],
    tensors: dict[str, Tensor],
    network: Backbone,
) -> AmortisedExtension | None:
    """Read what :func:`extension_tensors` named; ``None`` where there was nothing.

    Args:
        model: The estimator, with its parameters.
        facts: Of the model file.
        tensors: Of the model file.
        network: The trained network.
    """
    own = {
        name.removeprefix(_TENSOR): tensor
        for name, tensor in tensors.items()
        if name.startswith(_TENSOR)
    }
    if not own:
        return None
    if isinstance(model, Auto):
        model = Amortised(**stored_choice(facts).parameters)
    if not isinstance(model, Amortised):
        raise ValueError(f"{facts['method']} scores no new edges")
    return AmortisedExtension.from_tensors(
        own,
        model.make_structure(),
        model.guess_network(),
        network,
        facts["num_features"],
        facts["num_classes"],
    )
