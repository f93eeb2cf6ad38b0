"""From a user's graph to a bilevel problem on tensors, and from training to a model."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any, Literal, NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import softmax

from gsebo.bilevel import Tree
from gsebo.data import num_classes
from gsebo.distributed.group import Alone, Group
from gsebo.errors import InvalidInput
from gsebo.files import Name, NotNegative, Share, Size, Text
from gsebo.graph import Propagation, Topology, canonicalise
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import at_or_median, find_edges
from gsebo.methods.run import Run, drawn_by, is_worth_threads, one_core_each
from gsebo.model.fitted import FittedModel
from gsebo.nn import Backbone, make_backbone
from gsebo.nn.base import Features
from gsebo.sparse import make_features
from gsebo.sparse.numba_compile import thread_limit
from gsebo.structure import GraphContext, Structure
from gsebo.training import (
    JointProblem,
    LoopSettings,
    Member,
    NodeClassification,
    Patience,
    Progress,
    Task,
)
from gsebo.training.consistency import Consistency
from gsebo.training.history import SelectBy
from gsebo.training.loop import shared_out
from gsebo.training.problem import Reduction


@dataclass(frozen=True)
class NetworkChoices:
    """Which network, as an estimator's parameters say it."""

    backbone: str | type | nn.Module
    hidden_channels: int
    num_layers: int
    dropout: float
    options: dict[str, Any] | None

    def __post_init__(self) -> None:
        if not isinstance(self.backbone, str | type | nn.Module):
            raise InvalidInput(
                f"backbone={self.backbone!r} given; expected a name, a class or a "
                "module."
            )

    def build(self, in_channels: int, out_channels: int) -> Backbone:
        """Build the network with fresh weights from torch's current seed."""
        return make_backbone(
            self.backbone,
            in_channels=in_channels,
            hidden_channels=self.hidden_channels,
            out_channels=out_channels,
            num_layers=self.num_layers,
            dropout=self.dropout,
            options=self.options,
        )

    def count_weights(self, in_channels: int, out_channels: int) -> int | None:
        """How many weights the network would have, without any memory for them.

        None where a class or module of the user's own says it best.
        """
        if not isinstance(self.backbone, str):
            return None
        try:
            with torch.device("meta"):
                network = self.build(in_channels, out_channels)
        except RuntimeError as error:
            # Numbers of bytes beyond 64 bits are not even counted.
            raise InvalidInput(
                f"hidden_channels={self.hidden_channels}, num_layers="
                f"{self.num_layers} and backbone_options={self.options!r:.80} make a "
                "network beyond any memory; expected a smaller one."
            ) from error
        return sum(weight.numel() for weight in network.parameters())


def resolve_device(device: str) -> torch.device:
    """Turn a device's name into a device; ``"auto"`` prefers a GPU."""
    if not isinstance(device, str | torch.device):
        raise InvalidInput(
            f"a device that is a {type(device).__name__} given; expected 'auto', 'cpu' "
            "or the name of a device that this machine has."
        )
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        # A device that is not there raises here, and "meta" holds no numbers.
        torch.empty(1, device=found).tolist()
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise InvalidInput(
            f"device={device!r:.80} given; expected 'auto', 'cpu' or a device that "
            "this machine has."
        ) from error
    return found


Made = TypeVar("Made")
# What the edges of a graph say; copies with other labels have the same tensors.
_OF_EDGES = ("edge_index", "edge_weight", "edge_attr", "edge_type", "node_type")


@final
class _Kept:
    """What was made of some objects, once for each of them and for all threads."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._found: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def once(
        self, what: str, given: tuple[object, ...], make: Callable[[], Made]
    ) -> Made:
        """Make it, or return what was made of the same objects before."""
        key = (what, *map(id, given))
        with self._lock:
            if key not in self._found:
                # The objects stay, so that no other one gets their ids.
                self._found[key] = given, make()
            made: Made = self._found[key][1]
            return made


_KEPT: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def laid_out_once() -> Iterator[None]:
    """Lay out edges and features that several fits inside read once for all of them.

    The fits may know different labels. It can decorate a function.
    """
    token = _KEPT.set(_Kept())
    try:
        yield
    finally:
        _KEPT.reset(token)


@final
class PreparedGraph:
    """A validated graph on its device, in the form that networks read.

    What does not depend on the seed is made once and shared by all problems on it; what
    does not depend on labels either, by all that are :func:`laid_out_once`.
    """

    def __init__(
        self, data: Graph, device: torch.device, kept: _Kept | None = None
    ) -> None:
        self.data = data
        self.device = device
        self._kept = kept or _KEPT.get() or _Kept()
        edges = {key: data[key] for key in _OF_EDGES if key in data}
        what = f"graph by {', '.join(edges)}"
        self.graph = self._kept.once(
            what, tuple(edges.values()), lambda: canonicalise(data)
        )
        self.dtype = data.x.dtype if data.x.dtype == torch.float64 else torch.float32

    @cached_property
    def features(self) -> Features:
        """Of the nodes, dense or sparse."""
        x = self.data.x
        return self._kept.once(
            f"features on {self.device}",
            (x,),
            lambda: make_features(x, self.dtype, self.device),
        )

    @cached_property
    def labels(self) -> Tensor:
        """Class of each node, -1 where a fit may not know it."""
        return self.data.y.to(self.device, torch.int64)

    @cached_property
    def inner_nodes(self) -> Tensor:
        """Nodes of the training mask."""
        return self.data.train_mask.nonzero().squeeze(-1).to(self.device)

    def with_edges(self, edge_index: Tensor) -> "PreparedGraph":
        """The same nodes, features and labels with other edges ``[2, E]``.

        Edges of the given graph keep what is given of them; others are given what an
        edge in the middle has: the median.
        """
        data, graph = copy.copy(self.data), self.graph
        data.edge_index = edges = edge_index.cpu()
        place = find_edges(graph.edge_index.cpu(), graph.num_nodes, edges)
        kept = {"edge_weight": graph.weight, "edge_attr": graph.attr}
        for key, values in kept.items():
            if key in data:
                del data[key]
            if values is not None:
                data[key] = at_or_median(values.cpu(), place)
        # There may be a new one in every step: nobody else keeps it.
        other = PreparedGraph(data, self.device, _Kept())
        other.__dict__["features"] = self.features
        return other

    def topology(self, *, self_loops: bool) -> Topology:
        """The entries of the graph, with a loop on every node or without."""
        return self._kept.once(
            f"topology on {self.device}, {self_loops}",
            (self.graph,),
            lambda: Topology.of(self.graph, self_loops=self_loops, device=self.device),
        )


def make_task(
    prepared: PreparedGraph,
    network: NetworkChoices,
    *,
    weight_decay: float,
    seed: int,
    inner_reduction: Reduction = "mean",
) -> Task:
    """Build the network for a graph, with weights drawn by the seed."""
    data, device = prepared.data, prepared.device
    classes = num_classes(data)
    with drawn_by(seed):
        # Drawn on the CPU, so that every device starts from the same weights.
        backbone = network.build(data.x.shape[1], classes).to(device, prepared.dtype)
        topology = prepared.topology(self_loops=backbone.self_loops)
        backbone.prepare(prepared.features, topology.pattern, classes)
    return Task(
        backbone=backbone,
        features=prepared.features,
        graph=topology,
        labels=prepared.labels,
        inner_nodes=prepared.inner_nodes,
        weight_decay=weight_decay,
        seed=seed,
        inner_reduction=inner_reduction,
    )


def make_problem(
    prepared: PreparedGraph,
    network: NetworkChoices,
    structure: Structure,
    *,
    outer_nodes: Tensor,
    weight_decay: float,
    seed: int,
    candidate: Tensor | None = None,
    inner_reduction: Reduction = "mean",
    consistency: Consistency | None = None,
) -> NodeClassification:
    """Lay the network and the structure, whose parameters are made here, over a graph.

    ``candidate`` says which edges are not the user's but may become part of the graph.
    """
    task = make_task(
        prepared,
        network,
        weight_decay=weight_decay,
        seed=seed,
        inner_reduction=inner_reduction,
    )
    start = task.initial_strengths
    with drawn_by(seed):
        structure.setup(
            GraphContext(
                graph=task.graph,
                start=start,
                num_layers=task.backbone.num_propagations,
                features=task.features,
                normalise=task.backbone.normalise,
                candidate=candidate,
            )
        )
    return NodeClassification(
        backbone=task.backbone,
        structure=structure,
        features=task.features,
        graph=task.graph,
        labels=task.labels,
        inner_nodes=task.inner_nodes,
        outer_nodes=outer_nodes.to(prepared.device),
        weight_decay=weight_decay,
        seed=seed,
        inner_reduction=inner_reduction,
        consistency=consistency,
    )


StopOn = Literal["val", "holdout"]


def outer_and_stopping_nodes(
    data: Graph, stop_on: StopOn, seed: int
) -> tuple[Tensor, Tensor]:
    """Split the validation nodes by their use.

    Of ``"val"`` all serve the outer loss and decide when to stop, of ``"holdout"`` a
    random half each.
    """
    nodes = data.val_mask.nonzero().squeeze(-1).cpu()
    if stop_on == "val":
        return nodes, nodes
    if nodes.numel() < 2:
        raise InvalidInput(
            f"stop_on='holdout' given with {nodes.numel()} validation node; expected "
            "at least 2 to split."
        )
    generator = torch.Generator().manual_seed(seed)
    shuffled = nodes[torch.randperm(nodes.numel(), generator=generator)]
    half = nodes.numel() // 2
    return shuffled[:half].sort().values, shuffled[half:].sort().values


def loop_settings(
    run: Run,
    stop_nodes: Tensor,
    *,
    max_steps: int,
    patience: int,
    select_by: SelectBy,
    group: Group | None = None,
) -> LoopSettings:
    """Put together how a loop runs."""
    return LoopSettings(
        max_steps=max_steps,
        patience=Patience(select_by, patience),
        stop_nodes=stop_nodes.to(run.device),
        fingerprint=run.fingerprint(),
        checkpoint=run.checkpoint,
        watcher=run.watcher,
        group=group or Alone(),
    )


def work_of(problem: NodeClassification | Task) -> int:
    """Multiplications of the widest product of one forward pass, roughly."""
    widest = max(p.shape[-1] for p in problem.backbone.parameters() if p.dim())
    features = problem.features
    stored = features.numel() if isinstance(features, Tensor) else len(features.values)
    return max(problem.graph.num_entries, stored) * widest


def keeps_one_core(prepared: PreparedGraph, network: NetworkChoices) -> bool:
    """Whether a fit keeps one core busy, so that several may run side by side.

    Such a fit shares nothing with others that changes. What autograd trains may draw
    from torch's one generator.
    """
    if prepared.device.type != "cpu":
        return False
    task = make_task(prepared, network, weight_decay=0.0, seed=0)
    return task.backbone.traceable and not is_worth_threads(work_of(task))


def fit_each(
    prepared: PreparedGraph,
    network: NetworkChoices,
    runs: Sequence[Run],
    fit: Callable[[Run], "Outcome"],
) -> list["Outcome"]:
    """Fit one run after another, or side by side where each keeps one core busy."""
    if len(runs) == 1 or not keeps_one_core(prepared, network):
        return [fit(run) for run in runs]
    workers = thread_limit()
    with one_core_each():
        return shared_out(runs, workers, fit)


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
    # Where another metric than accuracy decides: the same by it.
    fold_score: tuple[float, ...] = ()
    score: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """What an automatic fit decided: exactly one candidate is chosen."""

    tried: tuple[Tried, ...]
    parameters: dict[str, Any]  # Of the chosen method, in the form of JSON.
    # Share of edges far from labels that look false beyond those near them.
    shift: NotNegative = 0.0

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
        start=backbone.initial_strength(topology.pattern, weights=topology.weights),
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
def over_given_graph(prepared: PreparedGraph, outcome: Outcome) -> Outcome:
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
