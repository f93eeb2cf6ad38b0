"""Parts of a saved model: each is taken from a file by what it has to consist of."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gsebo.errors import InvalidInput, escaped
from gsebo.files import Form, check_tensors
from gsebo.methods.amortised import Amortised
from gsebo.methods.base import GraphClassifier
from gsebo.methods.files.facts import (
    FolderModelFacts,
    GraphModelFacts,
    ModelFacts,
    ScorerFacts,
)
from gsebo.methods.prepare import NetworkChoices
from gsebo.model.extension import GUESS, SCORER
from gsebo.nn import Backbone
from gsebo.structure import AmortisedStrength

Tensors = dict[str, Tensor]
Forms = dict[str, Form]


@final
class Parts:
    """The tensors of a file, from which one part after the other is taken.

    Args:
        tensors: All of them, by name.
        where: What they belong to, for messages.
    """

    def __init__(self, tensors: Tensors, where: str) -> None:
        self._left = dict(tensors)
        self.where = where

    def take(self, forms: Mapping[str, Form], prefix: str = "") -> Tensors:
        """Take a part that is known by its names.

        Args:
            forms: What each tensor has to be.
            prefix: What their names begin with in the file.
        """
        found = {
            name: self._left.pop(prefix + name)
            for name in forms
            if prefix + name in self._left
        }
        check_tensors(under(prefix, found), under(prefix, forms), self.where)
        return found

    def take_all(self, prefix: str) -> Tensors:
        """Take whatever is called so, to be checked by who takes it."""
        return {
            name.removeprefix(prefix): self._left.pop(name)
            for name in list(self._left)
            if name.startswith(prefix)
        }

    def require_nothing_else(self) -> None:
        """Raise if the file holds what belongs to no part."""
        check_tensors(self._left, {}, self.where)


def stored_network(
    choices: NetworkChoices,
    facts: ModelFacts,
    tensors: Tensors,
    where: str,
    get_ready: Callable[[Backbone], None] | None = None,
) -> Backbone:
    """Build a network with the weights of a file.

    Args:
        choices: Which network.
        facts: The description of the model.
        tensors: Its ``state_dict``.
        where: What it belongs to, for messages.
        get_ready: Called before the weights are loaded.
    """
    sizes, dtype = (facts.num_features, facts.num_classes), facts.torch_dtype
    named = isinstance(choices.backbone, str)
    if named:
        _check_sizes(choices, tensors)
        # On paper first: what a description claims takes no memory there.
        with torch.device("meta"):
            claimed = choices.build(*sizes).to(dtype)
        forms = forms_of(claimed.state_dict())
        present = {name: each for name, each in tensors.items() if name in forms}
        check_tensors(present, forms, where)
    with torch.random.fork_rng(devices=[]):
        network = choices.build(*sizes).to(dtype)
        if get_ready is not None:
            get_ready(network)
    check_tensors(tensors, forms_of(network.state_dict()), where)
    network.load_state_dict(tensors)
    return network


def forms_of(tensors: Mapping[str, Tensor]) -> Forms:
    """The forms of tensors that are there; what is still to be made has none."""
    return {
        name: Form(tensor.dtype, tuple(tensor.shape))
        for name, tensor in tensors.items()
        if not is_lazy(tensor)
    }


def weight_forms(network: nn.Module) -> Forms:
    """Forms of the weights of a network that are trained, by name."""
    return forms_of(
        {
            name: weight
            for name, weight in network.named_parameters()
            if weight.requires_grad
        }
    )


def under(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The same with longer names: those of one part of a file."""
    return {prefix + name: each for name, each in named.items()}


def part_of(tensors: Tensors, prefix: str) -> Tensors:
    """One part of a file, by the names that it has itself."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _check_sizes(network: NetworkChoices, weights: Tensors) -> None:
    """Refuse what the weights contradict, before anything huge is built."""
    layers, width = network.num_layers, network.hidden_channels
    widest = max((size for each in weights.values() for size in each.shape), default=0)
    if layers > len(weights) or (layers > 1 and width > widest):
        raise InvalidInput(
            f"the model file describes {layers} layers of width {width}; expected at "
            f"most the {len(weights)} weights it holds, of at most {widest} columns."
        )


@final
class StoredScorer(NamedTuple):
    """What scores edges that a fit never saw.

    Attributes:
        structure: The learned function.
        guess: The network that knows features alone, where the function looks at it.
    """

    structure: AmortisedStrength
    guess: Backbone | None


def scorer_facts(
    structure: AmortisedStrength | None, *, guess: bool, first: bool
) -> ScorerFacts | None:
    """What a description says of the function, if there is one.

    Args:
        structure: The function.
        guess: Whether it looks at guesses from features alone.
        first: Whether at those of a first network, too.
    """
    if structure is None:
        return None
    centred = structure.centre.numel() > 0
    return ScorerFacts(centred=centred, guess=guess, first=first)


def stored_scorer(
    parts: Parts,
    facts: GraphModelFacts | FolderModelFacts,
    model: GraphClassifier,
    network: Backbone,
    prefix: str = "",
) -> StoredScorer:
    """Take the function that scores edges, and what it looks at.

    Args:
        parts: Of the file.
        facts: The description of the model, with a function.
        model: The estimator that learned it.
        network: The trained network.
        prefix: What the names begin with in the file.
    """
    assert facts.scorer is not None
    if not isinstance(model, Amortised):
        raise InvalidInput(
            f"{escaped(parts.where)} is said to score new edges with "
            f"{type(model).__name__}; expected Amortised, which alone does."
        )
    structure = model.make_structure()
    forms = structure.forms(
        facts.num_features,
        network.num_propagations,
        facts.torch_dtype,
        centred=facts.scorer.centred,
    )
    structure.restore(parts.take(forms, prefix + SCORER), network.normalise)
    guess = None
    if facts.scorer.guess:
        weights = parts.take_all(prefix + GUESS)
        guess = stored_network(model.guess_network(), facts, weights, parts.where)
    return StoredScorer(structure, guess)
