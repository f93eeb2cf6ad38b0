"""The estimator contract, as in scikit-learn, on PyG graphs."""

import copy
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch_geometric.data import Data

from gsebo.data import num_classes, validate
from gsebo.data.node_match import NodeKeys
from gsebo.data.sizes import sized
from gsebo.data.unseen import refuse_unseen
from gsebo.errors import InvalidInput
from gsebo.lookup import normalise
from gsebo.methods.fingerprint import fingerprint
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import require_count, require_seed
from gsebo.methods.prepare import NetworkChoices, resolve_device
from gsebo.methods.scoring import scored_nodes
from gsebo.training import Checkpoint, Watcher


class GraphClassifier(BaseEstimator, ABC):
    """A node classifier that may change how much each edge counts.

    The constructor only stores its arguments; :meth:`fit` learns. Nothing in a fit
    reads the labels outside ``train_mask`` and ``val_mask``, and the input is never
    changed.

    Attributes:
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
        model_: The trained network with its strengths.
        replicas_: One fitted estimator for each replica; the first is this one.
        supported_backbones: Names of the networks that the method works with; empty
            for any.
        needs_features: Whether a graph without ``x`` is refused.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ()
    needs_features: ClassVar[bool] = True

    backbone: str | type | nn.Module
    hidden_channels: int
    num_layers: int
    dropout: float
    backbone_options: dict[str, Any] | None
    random_state: int | None
    device: str

    @abstractmethod
    def _check_parameters(self) -> None:
        """Check what this method alone has."""

    @abstractmethod
    def _train(self, data: Data, runs: Sequence["Run"]) -> Sequence[Outcome]:
        """Train on a validated graph, once for each run."""

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
        self._check_parameters()
        require_seed(self.random_state)
        supported, given = self.supported_backbones, self.backbone
        if supported and not (isinstance(given, str) and normalise(given) in supported):
            expected = " or ".join(repr(name) for name in supported)
            raise InvalidInput(
                f"backbone={given!r} given; {type(self).__name__} expected {expected}."
            )

    @final
    def fit(
        self,
        data: Data,
        *,
        replicas: int = 1,
        checkpoint: Checkpoint | None = None,
        watcher: Watcher | None = None,
    ) -> Self:
        """Learn from the training and validation labels of ``data``.

        Args:
            data: Graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask``.
            replicas: Number of fits with seeds that count up from ``random_state``,
                all at once where the network and device allow it. ``replicas_`` holds
                them all, each as it would be alone (on a GPU to rounding); this
                estimator is the first.
            checkpoint: Where to save progress, and whether to resume from it; for one
                replica only.
            watcher: Called after each outer step of each replica, with its record and
                all logits; with several replicas from several threads.
        """
        self.check_parameters()
        require_count(replicas=replicas)
        if checkpoint is not None and replicas > 1:
            raise InvalidInput(
                f"replicas={replicas} given with a checkpoint; expected one replica."
            )
        validate(data, features_needed=self.needs_features)
        data = sized(data)
        refuse_unseen(data)
        seed = self.random_state
        seed = secrets.randbits(31) if seed is None else int(seed)
        device = resolve_device(self.device)
        runs = [
            Run(self, data, seed + number, device, checkpoint, watcher)
            for number in range(replicas)
        ]
        trained = self._train(_without_test_labels(data), runs)
        nodes = NodeKeys.of(data)
        self._store(data, nodes, runs[0], trained[0])
        self.replicas_ = [self]
        for run, result in zip(runs[1:], trained[1:], strict=True):
            other = clone(self).set_params(random_state=run.seed)
            other._store(data, nodes, run, result)
            other.replicas_ = [other]
            self.replicas_.append(other)
        return self

    def _store(self, data: Data, nodes: NodeKeys, run: "Run", outcome: Outcome) -> None:
        progress = outcome.progress
        assert progress.best is not None
        self.model_ = replace(outcome.model, nodes=nodes)
        self.seed_ = run.seed
        self.num_classes_ = num_classes(data)
        self.history_ = progress.history
        self.best_step_ = progress.best.step
        self.probability_ = outcome.probability.cpu()
        self.restore_graph(data)

    @final
    def restore_graph(self, data: Data) -> None:
        """Derive what is said in the user's edge order from ``model_``."""
        self.transduction_ = self.probability_.argmax(dim=-1)
        self.strength_ = self.model_.in_user_order(self.model_.strengths)
        self.initial_strength_ = self.model_.in_user_order(self.model_.start)
        self.loop_strength_ = self.model_.loop_strengths()
        self.new_edge_index_, self.new_edge_strength_ = self.model_.new_edges()
        self.graph_ = copy.copy(data)
        # PyG wants the edges on the first axis of an edge attribute.
        self.graph_.edge_strength = self.strength_.movedim(-1, 0)

    @final
    def predict_proba(self, data: Data) -> Tensor:
        """Class probabilities of every node of ``data``, ``[nodes, classes]``.

        The graph need not be the one of the fit: edges that it had keep their strength,
        others get one by what the method learned. Nodes are matched by ``node_id``, or
        else by position and features.
        """
        check_is_fitted(self, "model_")
        needed = self.needs_features
        validate(data, labels_needed=False, features_needed=needed)
        return self.model_.probabilities(sized(data)).cpu()

    @final
    def predict(self, data: Data) -> Tensor:
        """Class of every node of ``data``, ``[nodes]``."""
        return self.predict_proba(data).argmax(dim=-1)

    @final
    def score(self, data: Data, mask: str | Tensor = "test") -> float:
        """Accuracy over the nodes of a mask, as a fraction in [0, 1].

        Args:
            data: Graph with labels.
            mask: ``"test"``, ``"val"``, ``"train"``, or a boolean tensor ``[nodes]``.
        """
        predicted = self.predict(data)
        chosen = scored_nodes(sized(data), mask)
        return float((predicted == data.y.cpu())[chosen].double().mean())

    @final
    def save(self, folder: str | Path, *, dataset: str | None = None) -> None:
        """Write the fitted model to a folder, as safetensors and JSON.

        Args:
            folder: Where to; it is made if it does not exist.
            dataset: Name or path of the graph, to be remembered with the model.
        """
        from gsebo.methods.persistence import save_model

        check_is_fitted(self, "model_")
        save_model(self, Path(folder), dataset)


class Run:
    """One call of ``fit``: its seed, device and what goes with it."""

    def __init__(
        self,
        estimator: GraphClassifier,
        data: Data,
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
        name = type(self._estimator).__name__
        return fingerprint(name, parameters, self._data)


def _without_test_labels(data: Data) -> Data:
    """Hide every label that a fit may not know, so that no code path can read it."""
    visible = copy.copy(data)
    labelled = data.train_mask | data.val_mask
    visible.y = torch.where(labelled, data.y, -1)
    return visible
