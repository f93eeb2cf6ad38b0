"""Strengths of edges that a fit never saw, by the function that it learned."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gsebo.backbone import Backbone
from gsebo.backbone.base import Features
from gsebo.bilevel import Tree
from gsebo.methods.extension import Extension, KnownEntries
from gsebo.structure import AmortisedStrength, Topology

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
