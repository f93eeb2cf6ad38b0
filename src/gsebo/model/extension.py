"""Strengths for a graph that is not the one of the fit."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gsebo.bilevel import Tree
from gsebo.errors import InputWarning
from gsebo.graph import Topology
from gsebo.nn import Backbone
from gsebo.nn.base import Features
from gsebo.structure import AmortisedStrength


@dataclass(frozen=True, eq=False)
class KnownEntries:
    """What of a graph is known from the fit.

    Attributes:
        entry: For each entry of the graph, edges first and then self-loops, the entry
            of the fit's graph or -1, int64 ``[entries]``.
        node: For each node the node of the fit or -1, int64 ``[nodes]``.
        num_edges: Number of entries that are edges.
        strengths: Of the fit, ``[its entries]`` or ``[layers, its entries]``.
    """

    entry: Tensor
    node: Tensor
    num_edges: int
    strengths: Tensor

    @property
    def num_new_edges(self) -> int:
        """Number of edges that the fit did not have; both directions count."""
        return int((self.entry[: self.num_edges] < 0).sum())

    @property
    def num_new_nodes(self) -> int:
        """Number of nodes that the fit did not have."""
        return int((self.node < 0).sum())

    def kept(self, fresh: Tensor) -> Tensor:
        """The fit's strengths where there are any, and elsewhere others.

        Args:
            fresh: Strengths of all entries of the graph, ``[..., entries]``.
        """
        if not self.strengths.shape[-1]:
            # There is nothing to select from, not even for entries that are not known.
            return fresh
        found = self.strengths.index_select(-1, self.entry.clamp(min=0))
        return torch.where(self.entry >= 0, found, fresh)


class Extension(ABC):
    """How a fitted model finds the strengths of edges that it has never seen."""

    @abstractmethod
    def strengths(
        self,
        known: KnownEntries,
        topology: Topology,
        features: Features,
        backbone: Backbone,
    ) -> Tensor:
        """Strengths of all entries of a graph, ``[entries]`` or ``[layers, entries]``.

        Args:
            known: Which of its nodes and entries are those of the fit.
            topology: The graph.
            features: Of its nodes.
            backbone: The trained network.
        """


@final
class VanillaForNew(Extension):
    """Known entries keep their strength, new ones get the vanilla weight, aloud."""

    def strengths(
        self,
        known: KnownEntries,
        topology: Topology,
        features: Features,
        backbone: Backbone,
    ) -> Tensor:
        """Strengths of all entries of a graph, ``[entries]`` or ``[layers, entries]``.

        Args:
            known: Which of its nodes and entries are those of the fit.
            topology: The graph.
            features: Not looked at.
            backbone: The trained network, whose vanilla weights new entries get.
        """
        del features
        if known.num_new_edges:
            warnings.warn(
                f"{known.num_new_edges} of {known.num_edges} edges are not in the "
                "graph of the fit and got the vanilla weight, because what was learned "
                "says nothing about new edges.",
                InputWarning,
                stacklevel=2,
            )
        return known.kept(backbone.initial_strength(topology.pattern))


SCORER, GUESS, FIRST, EDGE_WEIGHTS = "scorer:", "guess:", "first:", "edge_weights"
"""What the names of its tensors begin with, and the name of one."""


@final
@dataclass(frozen=True, eq=False)
class AmortisedExtension(Extension):
    """Known edges keep their weight, new ones are scored.

    Attributes:
        structure: The learned function.
        guess: The network that knows features alone; ``None`` where the function looks
            at no predictions.
        first: Weights of the network whose predictions the function looks at; ``None``
            where it looks at the guess alone.
        weights: Of the edges of the fit, before normalisation, ``[..., edges]``.
    """

    structure: AmortisedStrength
    guess: nn.Module | None
    first: Tree | None
    weights: Tensor

    @torch.no_grad()
    def strengths(
        self,
        known: KnownEntries,
        topology: Topology,
        features: Features,
        backbone: Backbone,
    ) -> Tensor:
        """Strengths of all entries of a graph, ``[entries]`` or ``[layers, entries]``.

        Args:
            known: Which of its nodes and entries are those of the fit.
            topology: The graph.
            features: Of its nodes.
            backbone: The trained network.
        """
        scorer, pattern = self.structure, topology.pattern
        evidence = scorer.evidence_of(topology, None, features)
        state = None
        if self.guess is not None:
            guess = self.guess(features, pattern, None, None).softmax(-1)
            state = guess, guess
            if self.first is not None:
                at_first = scorer.weights(topology, evidence, None, state)
                inputs = (features, pattern, scorer.strengths(pattern, at_first), None)
                predicted = functional_call(backbone, self.first, inputs).softmax(-1)
                state = guess, predicted
        fresh = scorer.weights(topology, evidence, None, state)
        scorer.forget()
        entry = known.entry[: known.num_edges]
        edges = KnownEntries(entry, known.node, known.num_edges, self.weights)
        return scorer.strengths(pattern, edges.kept(fresh))

    def tensors(self) -> dict[str, Tensor]:
        """Everything to be saved."""
        parts = {
            SCORER: self._scorer(),
            GUESS: {} if self.guess is None else self.guess.state_dict(),
            FIRST: self.first or {},
        }
        found = {
            prefix + name: tensor.detach().clone()
            for prefix, part in parts.items()
            for name, tensor in part.items()
        }
        return {**found, EDGE_WEIGHTS: self.weights}

    def _scorer(self) -> dict[str, Tensor]:
        """What scores other edges; what single edges had is in their weights."""
        named = self.structure.state_dict()
        return {name: tensor for name, tensor in named.items() if name != "own"}
