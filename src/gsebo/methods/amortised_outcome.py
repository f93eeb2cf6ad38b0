"""What a fit with amortised strengths leaves behind."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call

from gsebo.backbone import Backbone
from gsebo.bilevel import Tree
from gsebo.methods.amortised_extension import AmortisedExtension
from gsebo.methods.fitted import FittedModel
from gsebo.methods.outcome import Outcome
from gsebo.methods.plain_training import PlainTraining, probabilities
from gsebo.methods.prepare import NetworkChoices, PreparedGraph
from gsebo.structure import AmortisedStrength, Predictions, Propagation
from gsebo.training import CrossFit, Member, NodeClassification, Progress
from gsebo.training.cross_fit import seen_state


@torch.no_grad()
def fold_outcome(
    ground: PreparedGraph, problem: CrossFit, progress: Progress
) -> Outcome:
    """The networks that learned the structure, each on the strengths that it sees."""
    base, outer = problem.base, progress.best_outer
    members, strengths = [], []
    for network, weights in enumerate(problem.networks(progress.best_weights)):
        here = base.with_state(problem.state(network, weights, outer))
        strengths.append(here.strengths(outer))
        propagation = Propagation(base.graph.pattern, strengths[-1])
        members.append(Member(propagation, base.named_weights(weights)))
    mean = torch.stack(strengths).mean(0)
    model = _fitted(ground, base.backbone, base, mean)
    model = replace(model, members=tuple(members))
    return Outcome(model, progress, model.probabilities(ground.data))


def refitted_outcome(
    ground: PreparedGraph,
    problem: CrossFit,
    progress: Progress,
    *,
    network: NetworkChoices,
    guess_network: NetworkChoices,
    training: PlainTraining,
    guessed: bool,
    own_predictions: bool,
) -> Outcome:
    """Fresh weights on the learned structure, from all labelled nodes.

    First a network that knows features alone; then one on the graph as scored with
    that guess, whose predictions the structure looks at; then the one that predicts.

    Args:
        ground: The graph, candidate edges included.
        problem: What the structure was learned with.
        progress: How that went.
        network: Which network.
        guess_network: The one that knows features alone.
        training: How each is trained.
        guessed: Whether the structure looks at predictions.
        own_predictions: Whether at the network's own, too.
    """
    base, outer = problem.base, progress.best_outer
    data = ground.data
    labelled = (data.train_mask | data.val_mask).nonzero().squeeze(-1)
    labelled = labelled.to(ground.device)
    guess, first = None, None
    state: Predictions | None = None
    if guessed:
        guess_problem, guess_weights = training.train(
            ground, guess_network, None, labelled
        )
        guess = _loaded(guess_problem, guess_weights)
        guessed_classes = probabilities(guess_problem, guess_weights)
        state = guessed_classes, guessed_classes
        if own_predictions:
            at_first = _strengths(base, outer, state)
            _, first = training.train(ground, network, at_first, labelled)
            state = seen_state(base, first, outer, guessed_classes)
    strengths = _strengths(base, outer, state)
    fresh, weights = training.train(ground, network, strengths, labelled)
    backbone = _loaded(fresh, weights)
    model = _fitted(ground, backbone, base, strengths)
    extension = AmortisedExtension(
        structure=_learned(base, outer),
        guess=guess,
        first=None if first is None else base.named_weights(first),
        weights=_edge_weights(base, outer, state),
    )
    model = replace(model, extension=extension)
    with torch.no_grad():
        # By the same operations that predict later, not by kernel calls of training.
        logits = fresh.logits(weights, {}, None)
    return Outcome(model, progress, logits.softmax(-1))


@torch.no_grad()
def _strengths(
    base: NodeClassification, outer: Tree, state: Predictions | None
) -> Tensor:
    return base.with_state(state).strengths(outer)


@torch.no_grad()
def _edge_weights(
    base: NodeClassification, outer: Tree, state: Predictions | None
) -> Tensor:
    """Weights of the user's edges, before normalisation."""
    structure = base.structure
    assert isinstance(structure, AmortisedStrength)
    weights: Tensor = functional_call(
        structure, outer, (base.graph, state), {"normalised": False}
    )
    candidate = structure.candidate
    return weights if candidate is None else weights[..., ~candidate]


@torch.no_grad()
def _learned(base: NodeClassification, outer: Tree) -> AmortisedStrength:
    """The structure with what was learned as its own parameters."""
    structure = base.structure
    assert isinstance(structure, AmortisedStrength)
    for name, parameter in structure.named_parameters():
        parameter.copy_(outer[name])
    structure.forget()
    return structure


@torch.no_grad()
def _loaded(problem: NodeClassification, weights: Tree) -> Backbone:
    """The network with its trained weights."""
    parameters = dict(problem.backbone.named_parameters())
    for name, weight in problem.named_weights(weights).items():
        parameters[name].copy_(weight)
    return problem.backbone


def _fitted(
    ground: PreparedGraph,
    backbone: Backbone,
    base: NodeClassification,
    strengths: Tensor,
) -> FittedModel:
    return FittedModel(
        backbone=backbone,
        graph=ground.graph,
        strengths=strengths,
        start=backbone.initial_strength(base.graph.pattern),
        learned=True,
        num_features=ground.data.x.shape[1],
    )
