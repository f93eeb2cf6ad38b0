"""What one run of training gives an estimator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import softmax

from gsebo.bilevel import Tree
from gsebo.data import num_classes
from gsebo.files import Name, NotNegative, Share, Size, Text
from gsebo.graph import Propagation, Topology
from gsebo.methods.prepare import PreparedGraph
from gsebo.model.fitted import FittedModel
from gsebo.nn import Backbone
from gsebo.training import JointProblem, Member, NodeClassification, Progress, Task


@final
@dataclass(frozen=True)
class Tried:
    """A candidate of an automatic fit."""

    candidate: Name  # Of a method.
    preparation: Name  # Of what is done to the features.
    # Chosen number of training steps; None for a method that decides on its own
    # validation nodes when to stop, and where nothing was tried.
    epochs: Size | None
    fold_accuracy: tuple[Share, ...]  # In each fold that it was tried on.
    accuracy: Share | None  # Over all its held-out nodes.
    log_loss: float | None  # Mean negative log-likelihood of the same nodes.
    seconds: NotNegative  # That trying it took.
    chosen: bool
    reason: Text  # Why or why not.


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """What an automatic fit decided: exactly one candidate is chosen."""

    tried: tuple[Tried, ...]
    parameters: dict[str, Any]  # Of the chosen method, in the form of JSON.

    def __post_init__(self) -> None:
        chosen = sum(each.chosen for each in self.tried)
        if chosen != 1:
            raise ValueError(f"{chosen} candidates are chosen, not one")

    @property
    def chosen(self) -> Tried:
        """The chosen candidate."""
        return next(each for each in self.tried if each.chosen)


# Strengths that no prediction notices are not stored: a relaxed sample of a dense graph
# consists of them.
_SMALLEST = 1e-6


class Outcome(NamedTuple):
    """A trained model and how it came about."""

    model: FittedModel
    progress: Progress
    # Of classes on the graph of the fit, [nodes, classes]; empty if that is on disk.
    probability: Tensor = torch.empty(0)
    choice: Choice | None = None


@torch.no_grad()
def fitted_on(
    prepared: PreparedGraph, backbone: Backbone, strengths: Tensor, **more: Any
) -> FittedModel:
    """The model of a trained network with strengths of all entries of a graph."""
    topology = prepared.topology(self_loops=backbone.self_loops)
    return FittedModel(
        backbone=backbone,
        graph=prepared.graph,
        num_features=prepared.data.x.shape[1],
        num_classes=num_classes(prepared.data),
        strengths=strengths,
        start=backbone.initial_strength(topology.pattern),
        **more,
    )


@torch.no_grad()
def outcome_of(
    prepared: PreparedGraph, problem: NodeClassification, progress: Progress
) -> Outcome:
    """Take the best step of training with strengths on the given graph."""
    outer = progress.best_outer
    backbone = loaded(problem, progress.best_weights)
    strengths = problem.strengths(outer).clone()
    model = fitted_on(prepared, backbone, strengths, learned=bool(outer))
    logits = problem.logits(progress.best_weights, outer, None)
    return Outcome(model, progress, softmax(logits, dim=-1))


@torch.no_grad()
def joint_outcome_of(
    prepared: PreparedGraph, problem: JointProblem, progress: Progress
) -> Outcome:
    """Take the best step of training with a structure of its own."""
    task = problem.task
    weights, outer = progress.best_weights, progress.best_outer
    loops, members = task.backbone.self_loops, list[Member]()
    for propagation, own in problem.members(weights, outer) if problem.learned else ():
        # The form in which a member is kept: few entries, named weights.
        named = None if own is None else task.named_weights(own)
        kept = propagation.stored(_SMALLEST, self_loops=loops)
        members.append(Member(kept, named))
    model = fitted_on(
        prepared,
        loaded(task, weights),
        problem.strengths(weights, outer),
        learned=problem.learned,
        members=tuple(members),
    )
    return Outcome(model, progress, model.probabilities(prepared.data))


def outcomes_of(
    prepared: PreparedGraph,
    problems: Sequence[NodeClassification],
    progresses: Sequence[Progress],
) -> list[Outcome]:
    """The same for several runs."""
    pairs = zip(problems, progresses, strict=True)
    return [outcome_of(prepared, problem, progress) for problem, progress in pairs]


@torch.no_grad()
def told_of(prepared: PreparedGraph, outcome: Outcome) -> Outcome:
    """Lay what was trained on other edges of the same nodes over the user's graph."""
    model = outcome.model
    graph, strengths = model.held
    loops = model.backbone.self_loops
    trained = Topology.of(graph, self_loops=loops, device=prepared.device)
    propagation = Propagation(trained.pattern, strengths)
    edges, on_loops = propagation.at(prepared.graph)
    told = fitted_on(
        prepared,
        model.backbone,
        torch.cat([edges, on_loops], dim=-1) if loops else edges,
        members=model.members or (Member(propagation),),
        scorer=model.scorer,
    )
    return outcome._replace(model=told, probability=told.probabilities(prepared.data))


@torch.no_grad()
def loaded(holder: NodeClassification | Task, weights: Tree) -> Backbone:
    """The network with its trained weights."""
    parameters = dict(holder.backbone.named_parameters())
    for name, weight in holder.named_weights(weights).items():
        parameters[name].copy_(weight)
    return holder.backbone
