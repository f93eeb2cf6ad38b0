"""What networks say of the nodes of a graph whose edges are in doubt.

Labels that are known stand for themselves; of other nodes, networks predict. One knows
features alone, one knows the graph with doubtful edges weighed less. Where classes have
enough labels, amortised strengths say what each edge weighs.
"""

from __future__ import annotations

import copy
import warnings
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.preparation import fit_preparation
from gsebo.data.validate import MASKS
from gsebo.errors import InputWarning
from gsebo.graph.graph import Graph
from gsebo.methods.amortised import Amortised
from gsebo.methods.controls import TrainVal
from gsebo.suspects.pairs import Ints, Numbers, edges_of_ends, keys_of_ends

Probabilities = NDArray[np.float64]

# Not tuned: wider and shorter than the defaults of a classifier, which needs the last
# point of accuracy; and the mean of two networks.
_CHANNELS, _EPOCHS, _NETWORKS = 32, 150, 2
# Labels of each of two classes, without which no edge weights are learned.
_ENOUGH_LABELS = 5
UNSURE = 0.05
"""Probabilities of agreement below it say nothing more."""


@final
class GraphNetworks:
    """Networks on the nodes and the known labels of a graph, with any edges.

    Attributes:
        known: Class of each node whose label may be read, -1 of others.
        has_labels: Whether there are at least two classes among them.
        learns_weights: Whether there are enough labels to learn what edges weigh.
        has_features: Whether nodes have features of their own.
    """

    def __init__(self, graph: Graph, device: str) -> None:
        self._device = device
        self.known = known_labels(graph)
        classes, counts = np.unique(self.known[self.known >= 0], return_counts=True)
        self.has_labels = len(classes) > 1
        enough = int((counts >= _ENOUGH_LABELS).sum()) > 1
        self.learns_weights = self.has_labels and enough
        self.has_features = "x" in graph
        # Numbers of classes may have gaps where only held-back nodes are of some.
        self._class = classes
        if self.has_labels:
            self._graph = self._labelled(graph)

    def _labelled(self, graph: Graph) -> Graph:
        """The graph with the known labels, all of which every network learns from."""
        labels = np.searchsorted(self._class, self.known)
        labels = np.where(self.known >= 0, labels, -1)
        prepared = Graph(
            x=_features(graph), y=torch.from_numpy(labels), num_nodes=graph.num_nodes
        )
        val = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for label in range(len(self._class)):
            members = np.flatnonzero(labels == label)
            # Every class is trained on; which nodes validate makes no difference.
            val[members[1::5]] = True
        if not bool(val.any()):
            val[int(np.flatnonzero(labels >= 0)[-1])] = True
        prepared.val_mask, prepared.train_mask = val, (prepared.y >= 0) & ~val
        return prepared

    def features_only(self, seed: int) -> Probabilities:
        """What features alone say of each node's class, ``[nodes, classes]``."""
        # A network without edges looks at none of those that a graph must have.
        return self._predicted("mlp", np.array([[0, 1]]), None, seed)

    def on_graph(self, pairs: Ints, weights: Numbers, seed: int) -> Probabilities:
        """What a network says that knows pairs as weighted edges."""
        return self._predicted("gcn", pairs, weights, seed)

    def _predicted(
        self, backbone: str, pairs: Ints, weights: Numbers | None, seed: int
    ) -> Probabilities:
        network = TrainVal(
            backbone,
            hidden_channels=_CHANNELS,
            max_epochs=_EPOCHS,
            evaluate_every=_EPOCHS,
            device=self._device,
            random_state=seed,
        )
        _fit(network, self._joined(pairs, weights), replicas=_NETWORKS)
        each = [one.probability_.double().numpy() for one in network.replicas_]
        return self._with_known(np.mean(each, axis=0))

    def _with_known(self, predicted: Probabilities) -> Probabilities:
        """Certainty of the nodes whose class is known."""
        assert self._graph.y is not None
        labels = self._graph.y.numpy()
        known = np.flatnonzero(labels >= 0)
        predicted[known] = 0
        predicted[known, labels[known]] = 1
        return predicted

    def learned_weights(
        self, pairs: Ints, weights: Numbers | None, seed: int
    ) -> Numbers:
        """What each pair weighs by amortised strengths, before normalisation."""
        method = Amortised(device=self._device, random_state=seed)
        _fit(method, self._joined(pairs, weights))
        graph, scorer = method.model_.held[0], method.model_.scorer
        assert scorer is not None and scorer.weights is not None
        found = keys_of_ends(graph.edge_index.cpu().numpy().T, graph.num_nodes)
        wanted = keys_of_ends(pairs, graph.num_nodes)
        order = np.argsort(wanted)
        place = order[np.searchsorted(wanted[order], found)]
        total = np.bincount(place, scorer.weights.double().cpu().numpy(), len(pairs))
        return total / np.bincount(place, minlength=len(pairs))

    def _joined(self, pairs: Ints, weights: Numbers | None) -> Graph:
        graph = copy.copy(self._graph)
        graph.edge_index = edges_of_ends(pairs)
        if weights is not None:
            graph.edge_weight = torch.from_numpy(np.tile(weights, 2)).float()
        return graph

    def name_of(self, predicted: Probabilities) -> Ints:
        """The likeliest class of each node, by the numbers of the user's graph."""
        likeliest: Ints = self._class[predicted.argmax(1)]
        return likeliest


def known_labels(graph: Graph) -> Ints:
    """Class of each node whose label may be read, -1 of all others.

    Those of the training and validation nodes where the graph says which are; where it
    has no masks at all, every label.
    """
    if "y" not in graph:
        return np.full(graph.num_nodes, -1)
    labels = graph.y.cpu().numpy().astype(np.int64)
    masks = [graph[name] for name in MASKS if name in graph]
    if not masks:
        return labels
    read = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for name in MASKS[:2]:
        if name in graph:
            read |= graph[name].cpu()
    return np.where(read.numpy(), labels, -1)


def _features(graph: Graph) -> Tensor:
    """Features that networks of one setting can read, whatever their scale was."""
    if "x" not in graph:
        return fit_preparation("degree+identity", graph).features(graph)
    x = graph.x
    stored = x.values() if x.layout == torch.sparse_csr else x
    counts = bool((stored >= 0).all())
    sparse = int(torch.count_nonzero(stored)) < x.numel() / 4
    name = "rows" if sparse and counts else "standard"
    return fit_preparation(name, graph).features(graph)


def _fit(method: TrainVal | Amortised, graph: Graph, replicas: int = 1) -> None:
    with warnings.catch_warnings():
        # The graph is our own: whatever there is to say of the user's was said.
        warnings.simplefilter("ignore", InputWarning)
        method.fit(graph, replicas=replicas)


def log_agreement(predicted: Probabilities, pairs: Ints) -> Numbers:
    """How likely both ends are of one class, as a logarithm.

    Networks that are sure of two different classes say more than those that waver, up
    to the point where being surer says nothing more.
    """
    one, other = pairs.T
    alike = np.einsum("ij,ij->i", predicted[one], predicted[other])
    found: Numbers = np.log(alike + UNSURE)
    return found
