"""The estimator contract, as in scikit-learn, on PyG graphs."""

import copy
import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from gsebo.bilevel import make_hypergradient, make_optimizer
from gsebo.data import num_classes, validate
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.preparation import (
    PREPARATIONS,
    WITHOUT_FEATURES,
    Given,
    Preparation,
    fit_preparation,
)
from gsebo.data.splits import refuse_unseen
from gsebo.data.validate import sized, warn_of_scales
from gsebo.distributed.group import current_group, launched
from gsebo.errors import InputWarning, InvalidInput
from gsebo.graph.graph import Graph, GraphLike, as_graph, given_back
from gsebo.graph.hetero import give_strengths
from gsebo.graph.node_match import NodeKeys
from gsebo.memory import require_memory
from gsebo.methods.fitting import Choice, NetworkChoices, Outcome, resolve_device
from gsebo.methods.parameters import (
    Depth,
    FeaturesName,
    OptimizerName,
    OptionalSeed,
    Rate,
    Samples,
    ShareBelowOne,
    SklearnEstimator,
    Width,
    declared_parameters,
    require_choice,
    require_declared,
)
from gsebo.methods.run import Run, alike_on_any_threads
from gsebo.methods.watching import watched
from gsebo.metrics import MetricFunction, metric_function
from gsebo.names import normalise, own_name
from gsebo.training import Checkpoint, Watcher

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch_geometric.data import Data, HeteroData


def _require_shareable(estimator: SklearnEstimator) -> None:
    """Raise if several processes were started and cannot share the fit."""
    place = launched()
    if place is None or place.size == 1:
        return
    name, parameters = type(estimator).__name__, estimator.get_params(deep=False)
    started = f"{place.size} processes started"
    if "batch_size" not in parameters:
        raise InvalidInput(
            f"{started} for {name}, which they cannot share; expected one process, "
            "or a method with batch_size."
        )
    if parameters["batch_size"] is None:
        raise InvalidInput(
            f"{started} for {name} without batch_size; expected a batch_size, because "
            "batches are what they share."
        )
    engine = parameters["hypergradient"]
    if not make_hypergradient(engine, direct_term=True).by_derivatives:
        raise InvalidInput(
            f"{started} with hypergradient={engine!r}; expected 'reverse', 'truncated' "
            "or 'first_order', whose derivatives they can add up."
        )
    if parameters["random_state"] is None:
        raise InvalidInput(
            f"{started} with random_state=None; expected a seed, the same in all."
        )


@dataclass(eq=False, repr=False)
class GraphClassifier(SklearnEstimator, ABC):
    """A node classifier that may change how much each edge counts.

    The constructor only stores its arguments; :meth:`fit` learns. Nothing in a fit
    reads the labels outside ``train_mask`` and ``val_mask``, and the input is never
    changed.

    Args:
        backbone: Name, class or instance of a backbone or of a PyG model.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Rate of dropout.
        inner_lr: Learning rate of the weights.
        inner_optimizer: ``"adam"``, ``"sgd"`` or ``"momentum"``.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        backbone_options: Further arguments of the backbone, such as ``heads``.
        features: What is done to the features first: ``"given"`` (nothing), ``"rows"``
            (each row divided by its sum), ``"largest"`` (by its largest number),
            ``"metapaths"`` (the same, beside the embeddings along metapaths that the
            graph has) or ``"standard"`` (each column to mean 0 and variance 1);
            ``"degree"``, ``"identity"`` and ``"degree+identity"`` read the edges alone.
            It is stored with the model, and done to other graphs as well.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed; ``None`` draws one.

    Attributes:
        classes_: What the user calls each class, texts or numbers, ``[classes]``;
            predictions are places in it.
        transduction_: Predicted class of every node of the fit, ``[nodes]``.
        probability_: Their class probabilities, ``[nodes, classes]``.
        strength_: Strength of each edge in the order of the user's ``edge_index``,
            ``[edges]`` or ``[layers, edges]``.
        initial_strength_: The same before anything was learned, ``[edges]``.
        new_edge_index_: Edges that the graph of the fit does not have, ``[2, edges]``.
        new_edge_strength_: Their strengths, ``[edges]``.
        loop_strength_: Strength of each node's self-loop, or ``None`` where the network
            has none.
        history_: One record per outer step.
        best_step_: Number of the step that was kept.
        graph_: The user's graph with ``edge_strength`` added.
        seed_: The seed that was used.
        decision_: What an automatic fit decided; ``None`` of others.
        model_: The trained network with its strengths. Of a graph on disk there is only
            this, and what says nothing of single nodes or edges.
        replicas_: One fitted estimator for each replica; the first is this one.
        supported_backbones: Names of the networks that the method works with; empty
            for any.
        needs_features: Whether a graph without ``x`` is refused.
        uses_edge_weight: Whether the weights of edges make a difference.
        uses_edge_attr: Whether their attributes do.
        reads_types: Whether a graph with several types of nodes or relations is taken.
        chooses: Whether the method decides between others on the way.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ()
    needs_features: ClassVar[bool] = True
    uses_edge_weight: ClassVar[bool] = True
    uses_edge_attr: ClassVar[bool] = False
    reads_types: ClassVar[bool] = False
    chooses: ClassVar[bool] = False

    backbone: str | type | nn.Module = "gcn"
    _: KW_ONLY
    hidden_channels: Width = 16
    num_layers: Depth = 2
    dropout: ShareBelowOne = 0.5
    inner_lr: Rate = 0.01
    inner_optimizer: OptimizerName = "adam"
    weight_decay: Rate = 5e-4
    backbone_options: dict[str, Any] | None = None
    features: FeaturesName = "given"
    device: str = "auto"
    random_state: OptionalSeed = None

    def _check_parameters(self) -> None:
        """Check what the declaration of no single parameter can say."""

    @abstractmethod
    def _train(self, data: Graph, runs: Sequence[Run]) -> Sequence[Outcome]:
        """Train on a validated graph, once for each run."""

    @property
    def on_batches(self) -> bool:
        """Whether it is set up to train on batches of a graph, also of one on disk."""
        return getattr(self, "batch_size", None) is not None

    def train_on_folder(self, folder: GraphFolder, run: Run) -> Outcome:
        """Train on batches of a graph on disk, in a method with a ``batch_size``."""
        raise InvalidInput(
            f"{type(self).__name__} with a batch_size cannot train on the graph folder "
            f"{folder.path}; expected no batch_size, so that it is read whole."
        )

    @final
    def network(self) -> NetworkChoices:
        """Which network to train, as the parameters say it."""
        return NetworkChoices(
            self.backbone,
            self.hidden_channels,
            self.num_layers,
            self.dropout,
            self.backbone_options,
        )

    @final
    def check_parameters(self) -> None:
        """Raise `InvalidInput` for a parameter that cannot be used."""
        for name, declared in declared_parameters(type(self)).items():
            require_declared(name, getattr(self, name), declared)
        self.network()
        self._check_parameters()
        supported, given = self.supported_backbones, self.backbone
        if supported and not (isinstance(given, str) and normalise(given) in supported):
            expected = " or ".join(repr(name) for name in supported)
            raise InvalidInput(
                f"backbone={given!r} given; {type(self).__name__} expected {expected}."
            )
        _require_shareable(self)

    @final
    @alike_on_any_threads()
    def fit(
        self,
        data: GraphLike | GraphFolder,
        *,
        replicas: int = 1,
        checkpoint: Checkpoint | None = None,
        watcher: Watcher | Sequence[Watcher] | None = None,
        verbose: bool = False,
    ) -> Self:
        """Learn from the training and validation labels of ``data``.

        Args:
            data: Graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask``,
                or one on disk, which is read in parts by a method with ``batch_size``.
            replicas: Number of fits with seeds that count up from ``random_state``,
                all at once where the network and device allow it. ``replicas_`` holds
                them all, each as it would be alone (on a GPU to rounding); this
                estimator is the first.
            checkpoint: Where to save progress, and whether to resume from it; for one
                replica only.
            watcher: Called after each outer step of each replica, with its record and
                all logits; with several replicas from several threads. Where it
                returns ``True``, that training ends and keeps its best step so far;
                what a method does next, such as a refit or the training of another
                candidate, is still done. It may be a list of several.
            verbose: Show a progress bar in a terminal or a notebook, and elsewhere a
                line every few seconds.
        """
        self.check_parameters()
        require_declared("replicas", replicas, Samples)
        name, parameters = type(self).__name__, self.get_params(deep=False)
        with watched(name, parameters, watcher, verbose) as told:
            self._fit(data, replicas, checkpoint, told)
        return self

    def _fit(
        self,
        data: GraphLike | GraphFolder,
        replicas: int,
        checkpoint: Checkpoint | None,
        watcher: Watcher | None,
    ) -> None:
        alone = checkpoint is not None or isinstance(data, GraphFolder)
        if alone and replicas > 1:
            raise InvalidInput(
                f"replicas={replicas} given with a checkpoint or a graph on disk; "
                "expected one replica."
            )
        seed = self.random_state
        seed = secrets.randbits(31) if seed is None else int(seed)
        device = resolve_device(self.device)
        # Before anything is put on a GPU: each of several processes takes its own.
        current_group(device.type)
        if isinstance(data, GraphFolder):
            if self.on_batches:
                if self.features != Given.name:
                    raise InvalidInput(
                        f"features={self.features!r} given for the graph folder "
                        f"{data.path} and a batch_size; expected features that were "
                        "prepared before they were written, or no batch_size."
                    )
                self._require_room(data, 1, device)
                run = Run(self, data, seed, device, checkpoint, watcher)
                outcome, names = self.train_on_folder(data, run), data.manifest.classes
                self._store(outcome, run, class_names=names)
                return
            data = data.to_data()
        given, data = data, as_graph(data)
        validate(data, features_needed=self.reads_features())
        data = sized(data)
        refuse_unseen(data)
        self.require_readable(data)
        preparation, prepared = self._prepared(data)
        self._require_room(prepared, replicas, device)
        runs = [
            Run(self, data, seed + number, device, checkpoint, watcher)
            for number in range(replicas)
        ]
        # Every label that a fit may not know is hidden, so that no code can read it.
        visible = self._used_of(prepared)
        visible.y = torch.where(data.train_mask | data.val_mask, data.y, -1)
        nodes = NodeKeys.of(data)
        trained = self._train(visible, runs)
        if preparation is not None:
            trained = [
                each._replace(model=replace(each.model, preparation=preparation))
                for each in trained
            ]
        shown = given_back(data, given)
        self._store(trained[0], runs[0], nodes, shown, data.class_names)
        for run, result in zip(runs[1:], trained[1:], strict=True):
            other = type(self)(**copy.deepcopy(self.get_params(deep=False)))
            other.random_state = run.seed
            other._store(result, run, nodes, shown, data.class_names)
            self.replicas_.append(other)

    @final
    def require_readable(self, data: Graph) -> None:
        """Raise where a graph has types, and the method does not know what to do."""
        types = data.types
        if types is None or (self.reads_types and not self.on_batches):
            return
        name = type(self).__name__
        instead = "a method that reads types, such as 'vanilla', 'gsebo', 'amortised'"
        instead += " or 'hgsl'"
        if self.on_batches:
            name, instead = f"{name} with a batch_size", "no batch_size"
        raise InvalidInput(
            f"{name} given a graph with {len(types.node_types)} types of nodes and "
            f"{types.num_relations} relations; expected one of each, as "
            f"graph.without_types() has, or {instead}."
        )

    @final
    def reads_features(self) -> bool:
        """Whether a graph without features is of no use."""
        return self.needs_features and self.features not in WITHOUT_FEATURES

    def _prepared(self, data: Graph) -> tuple[Preparation | None, Graph]:
        """The graph with features as a network is to read them, and how they came."""
        if self.chooses:
            # It prepares them itself, in the way that turns out best.
            return None, data
        name = own_name("features", self.features, PREPARATIONS)
        if name == Given.name:
            warn_of_scales(data.x)
            return None, data
        preparation = fit_preparation(name, data)
        return preparation, preparation.apply(data)

    def networks(self) -> list[NetworkChoices]:
        """All networks that a fit trains at a time, that which predicts first."""
        return [self.network()]

    def _used_of(self, data: Graph) -> Graph:
        """A copy of a graph without what the method makes no use of, which is said."""
        used = copy.copy(data)
        unused = {
            "edge_weight": not self.uses_edge_weight,
            "edge_attr": not self.uses_edge_attr,
        }
        for key in [key for key, drop in unused.items() if drop and key in data]:
            del used[key]
            # Weights of one say nothing.
            if key == "edge_attr" or bool((data.edge_weight != 1).any()):
                what = "edge weights" if key == "edge_weight" else key
                warnings.warn(
                    f"{type(self).__name__} does not use {what}.",
                    InputWarning,
                    stacklevel=3,
                )
        return used

    def remembered_steps(self) -> int:
        """Training steps whose gradients are kept until they are walked back."""
        return 0

    def _require_room(
        self, data: Graph | GraphFolder, replicas: int, device: torch.device
    ) -> None:
        """Raise if what fits take at any rate is more than there is.

        All that they take is known when networks have been laid over the graph.
        """
        numbers, item, network = 0, 4, self.network()
        if isinstance(data, GraphFolder):
            columns, classes = data.manifest.num_features, data.manifest.num_classes
        else:
            columns = data.x.shape[1] if "x" in data and data.x is not None else 1
            item = 8 if columns > 1 and data.x.dtype == torch.float64 else 4
            classes = num_classes(data)
            hidden = network.hidden_channels * (network.num_layers - 1)
            numbers = data.num_nodes * (classes + hidden * (not self.on_batches))
        each = (one.count_weights(columns, classes or 1) for one in self.networks())
        weights = sum(count or 0 for count in each)
        optimizer = make_optimizer(self.inner_optimizer, self.inner_lr)
        moments = len(optimizer.init({"weights": torch.zeros(1)}).slots)
        copies = _COPIES_OF_WEIGHTS + moments + self.remembered_steps()
        numbers += copies * weights
        require_memory(
            int(replicas) * int(numbers) * item,
            device,
            instead="a smaller graph, fewer channels, layers, inner steps or replicas",
        )

    def _store(
        self,
        outcome: Outcome,
        run: Run,
        nodes: NodeKeys | None = None,
        shown: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        progress = outcome.progress
        assert progress.best is not None
        # What an earlier fit has left.
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        named = None if class_names is None else tuple(class_names)
        self.model_ = replace(outcome.model, nodes=nodes, class_names=named)
        self.seed_, self.history_ = run.seed, progress.history
        self.best_step_ = progress.best.step
        self.tell(outcome.choice, outcome.probability.cpu(), shown)

    def _tell_choice(self, choice: Choice | None) -> None:
        """Say what was decided on the way; most methods decide nothing."""

    @final
    def tell(self, choice: Choice | None, probability: Tensor, shown: Any) -> None:
        """Set what follows from ``model_``, after a fit or from files.

        Where that holds its graph, with predictions and what the user sees of it.
        """
        model, self.num_classes_ = self.model_, self.model_.num_classes
        self.classes_ = np.array(model.class_names or range(self.num_classes_))
        self.classes_ = self.classes_[: self.num_classes_]
        self.replicas_ = [self]
        self._tell_choice(choice)
        if not model.is_held:
            return
        assert model.strengths is not None and model.start is not None
        self.probability_, self.transduction_ = probability, probability.argmax(dim=-1)
        self.strength_ = model.in_user_order(model.strengths)
        self.initial_strength_ = model.in_user_order(model.start)
        self.loop_strength_ = model.loop_strengths()
        self.new_edge_index_, self.new_edge_strength_ = model.new_edges()
        self.graph_ = copy.copy(shown)
        if hasattr(shown, "edge_types") and not isinstance(shown, Graph):
            give_strengths(self.graph_, self.strength_.movedim(-1, 0))
            return
        # PyG wants the edges on the first axis of an edge attribute.
        self.graph_.edge_strength = self.strength_.movedim(-1, 0)

    @final
    @alike_on_any_threads()
    def predict_proba(self, data: GraphLike | GraphFolder) -> Tensor:
        """Class probabilities of every node of ``data``, ``[nodes, classes]``.

        The graph need not be the one of the fit: edges that it had keep their strength,
        others get one by what the method learned. Nodes are matched by ``node_id``, or
        else by position and features.

        Raises:
            InvalidInput: The graph cannot be used, or what the network computes from
                it is beyond what its numbers can hold.
        """
        self.require_fitted()
        if isinstance(data, GraphFolder) and self.model_.is_held:
            data = data.to_data()
        if not isinstance(data, GraphFolder):
            needed, data = self.reads_features(), as_graph(data)
            validate(data, labels_needed=False, features_needed=needed)
            data = self._used_of(sized(data))
        found = self.model_.probabilities(data).cpu()
        if not bool(found.isfinite().all()):
            raise InvalidInput(
                "the network's scores of these nodes are not finite; expected features "
                "of the size that it was trained with, and weights that were trained."
            )
        return found

    @final
    def predict(self, data: GraphLike | GraphFolder) -> Tensor:
        """Class of every node of ``data``, ``[nodes]``."""
        return self.predict_proba(data).argmax(dim=-1)

    @final
    def labels_of(self, graph: Graph) -> Tensor:
        """Labels of a graph by the numbers that the model has for its classes.

        Another graph may lack a class, and number the rest in another way: classes go
        by their names where both have them. One that the model does not know has a
        number that it never predicts.
        """
        own, given = self.model_.class_names, graph.class_names
        labels: Tensor = graph.y.cpu()
        if own is None or given is None or list(own) == given:
            return labels
        place = {name: number for number, name in enumerate(own)}
        numbers = [place.get(name, len(own)) for name in given]
        known = (labels >= 0) & (labels < len(given))
        renamed = torch.tensor(numbers)[torch.where(known, labels, 0)]
        return torch.where(known, renamed, torch.where(labels < 0, -1, len(own)))

    @final
    def score(
        self,
        data: GraphLike | GraphFolder,
        mask: str | Tensor = "test",
        *,
        scoring: str | MetricFunction = "accuracy",
    ) -> float:
        """A metric over the nodes of a mask: greater is better.

        Args:
            data: Graph with labels.
            mask: ``"test"``, ``"val"``, ``"train"``, or a boolean tensor ``[nodes]``.
            scoring: ``"accuracy"``, ``"balanced_accuracy"``, ``"f1_macro"``,
                ``"roc_auc"`` (of two classes), which are fractions in [0, 1],
                ``"neg_log_loss"``, or a function of labels ``[nodes]`` and
                probabilities ``[nodes, classes]``, both numpy arrays.

        Raises:
            InvalidInput: There is no such mask or metric, or it does not fit the
                labels, as ``"roc_auc"`` does not if all are of one class.
        """
        measured = metric_function(scoring)
        probability = self.predict_proba(data)
        predicted = probability.argmax(dim=-1)
        graph = data.labels() if isinstance(data, GraphFolder) else as_graph(data)
        graph, chosen = sized(graph), mask
        if isinstance(mask, str):
            require_choice("mask", mask, ("test", "val", "train"))
            chosen = graph.get(f"{mask}_mask")
            if chosen is None:
                raise InvalidInput(
                    f"the graph has no {mask}_mask; expected one to score on."
                )
        if not isinstance(chosen, Tensor) or chosen.dtype != torch.bool:
            raise InvalidInput(
                f"mask={mask!r} given; expected 'test', 'val', 'train' or a bool "
                "tensor."
            )
        for name, tensor in (("mask", chosen), ("y", graph.y)):
            shape = None if tensor is None else list(tensor.shape)
            if shape != [len(predicted)]:
                raise InvalidInput(
                    f"{name} has shape {shape}; expected [{len(predicted)}], one for "
                    "each node."
                )
        if not bool(chosen.any()):
            raise InvalidInput(
                "the mask holds no node; expected at least one to score."
            )
        labels, chosen = self.labels_of(graph), chosen.cpu()
        if scoring == "accuracy":
            # A node without a label is one that is wrong.
            return float((predicted == labels)[chosen].double().mean())
        return float(measured(labels[chosen].numpy(), probability[chosen].numpy()))

    @final
    def edges_frame(self, *, undirected: bool = False) -> "DataFrame":
        """The edges of the fit as a pandas ``DataFrame``, in the order of the user.

        Columns: ``source`` and ``target``, by the user's ids; ``start`` and
        ``strength`` (the mean over layers, and then ``strength_0``, ``strength_1``
        where layers have their own); ``ratio`` of both; ``weight``, as it was learned
        before normalisation, of methods that learn one; ``agreement``, the probability
        that both ends are of one class as far as the model knows; ``source_class`` and
        ``target_class``, known or else predicted.

        Args:
            undirected: Whether both directions of an edge are one row, their mean.
        """
        from gsebo.methods.edges import edges_frame

        self.require_fitted()
        return edges_frame(self, undirected=undirected)

    @final
    def clean_graph(
        self,
        *,
        threshold: float | None = None,
        by: Literal["weight", "agreement", "ratio", "strength"] = "weight",
        edge_weight: Literal["weight", "strength"] = "weight",
    ) -> "Data | HeteroData":
        """The graph of the fit as a PyG ``Data`` whose ``edge_weight`` was learned.

        A graph with types is a ``HeteroData``.

        It has all that the user's graph has; an edge that is there twice is kept once.

        Args:
            threshold: Leave out edges below it, both directions of an edge together;
                ``None`` keeps them all.
            by: What is compared with it, a column of :meth:`edges_frame`.
            edge_weight: ``"weight"``: before normalisation, for layers that normalise,
                such as ``GCNConv(...)``; of methods that learn strengths and no
                weights, strength / start; times the weight that the user gave the
                edge, where the method uses it. ``"strength"``: as the network has used
                them, self-loops included, for ``GCNConv(..., normalize=False)``.
        """
        from gsebo.methods.edges import clean_graph

        self.require_fitted()
        return clean_graph(self, threshold=threshold, by=by, edge_weight=edge_weight)

    @final
    def to_module(self) -> nn.Module:
        """The trained network as a ``torch.nn.Module`` of its own.

        ``module(x, edge_index, edge_weight=None)`` gives the logits of every node, on
        the graph of the fit those that ``predict_proba`` gives; PyG's ``Explainer``
        takes it as it is.

        Raises:
            InvalidInput: The method predicts with several networks or graphs of its
                own, or makes up features.
        """
        from gsebo.model.module import FittedModule

        self.require_fitted()
        return FittedModule(self.model_)

    @final
    def save(
        self,
        folder: str | Path,
        *,
        dataset: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the fitted model to a folder, as safetensors and JSON.

        Args:
            folder: Where to; it is made if it does not exist.
            dataset: Name or path of the graph, to be remembered with the model.
            overwrite: Whether a model that is there already may be replaced.

        Raises:
            InvalidInput: There is one, or nothing can be written there.
        """
        from gsebo.methods.saving import save_model

        self.require_fitted()
        save_model(self, Path(folder), dataset, overwrite=overwrite)


# Themselves, a gradient, and the best so far.
_COPIES_OF_WEIGHTS = 3
