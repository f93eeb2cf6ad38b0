"""What a fit leaves behind: a network, a graph, and the strength of each entry."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softmax
from torch_geometric.data import Data

from gsebo.backbone import Backbone
from gsebo.data import CanonicalGraph, canonicalise
from gsebo.errors import InvalidInput
from gsebo.sparse import make_features
from gsebo.structure import Topology


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained network on its graph.

    Attributes:
        backbone: The network with its trained weights.
        graph: The canonical graph of the fit.
        strengths: Strength of every entry, ``[entries]`` or ``[layers, entries]``.
        start: Strengths of the vanilla propagation, ``[entries]``.
        learned: Whether the strengths were learned for this very graph.
        num_features: Number of feature columns.
    """

    backbone: Backbone
    graph: CanonicalGraph
    strengths: Tensor
    start: Tensor
    learned: bool
    num_features: int

    @torch.no_grad()
    def probabilities(self, data: Data) -> Tensor:
        """Class probabilities of every node of ``data``, ``[nodes, classes]``."""
        if data.x.shape[1] != self.num_features:
            raise InvalidInput(
                f"the graph has {data.x.shape[1]} features per node; expected "
                f"{self.num_features}, as in the graph of the fit."
            )
        device, dtype = self.strengths.device, self.strengths.dtype
        graph = canonicalise(data)
        topology = Topology.of(
            graph, self_loops=self.backbone.self_loops, device=device
        )
        strengths = self._strengths_for(graph, topology)
        features = make_features(data.x, dtype, device)
        logits = self.backbone(features, topology.pattern, strengths, None)
        return softmax(logits, dim=-1)

    def _strengths_for(self, graph: CanonicalGraph, topology: Topology) -> Tensor:
        if graph.fingerprint() == self.graph.fingerprint():
            return self.strengths
        if not self.learned:
            return self.backbone.initial_strength(topology.pattern)
        raise InvalidInput(
            f"the graph has {graph.num_nodes} nodes and {graph.num_edges} edges and is "
            f"not the one of the fit ({self.graph.num_nodes} nodes and "
            f"{self.graph.num_edges} edges); expected the same graph, because one "
            "strength per edge was learned and says nothing about other edges."
        )

    def in_user_order(self, strengths: Tensor) -> Tensor:
        """Map ``[..., entries]`` to the edges of the user's ``edge_index``."""
        edges, loops = self._parts(strengths)
        if loops is None:
            # A self-loop of the user has no entry here: the network ignores it.
            loops = edges.new_zeros(*edges.shape[:-1], self.graph.num_nodes)
        return self.graph.to_user_order(edges, loops)

    def loop_strengths(self) -> Tensor | None:
        """Strengths of the self-loops, ``[..., nodes]``, where the network has any."""
        return self._parts(self.strengths)[1]

    def _parts(self, strengths: Tensor) -> tuple[Tensor, Tensor | None]:
        strengths = strengths.clamp(0, 1).cpu()
        edges = strengths[..., : self.graph.num_edges]
        loops = strengths[..., self.graph.num_edges :]
        return edges, loops if loops.shape[-1] else None
