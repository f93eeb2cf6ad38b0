"""A fitted model as a module of torch, which PyG's ``Explainer`` and any code can call.

In every network here a strength multiplies the message of its edge. So the mask that an
``Explainer`` lays on messages can be laid on strengths, whatever the network is.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from gsebo.data.preparation import Given, Largest, Preparation, Rows, Standard
from gsebo.errors import InvalidInput
from gsebo.graph import Topology, canonicalise
from gsebo.graph.features import normalise_rows
from gsebo.graph.graph import Graph
from gsebo.model.fitted import FittedModel
from gsebo.model.scorer import grounded
from gsebo.nn.base import Features
from gsebo.sparse import Noise, make_features


class _Seen(NamedTuple):
    """The last edges that the module was called with, laid out."""

    edge_index: Tensor
    topology: Topology
    is_that_of_the_fit: bool


@final
class _Mask(MessagePassing):
    """Where an ``Explainer`` puts the mask of the edges."""

    def forward(self, values: Tensor, num_nodes: int) -> Tensor:
        """Numbers of the user's edges, masked where there is a mask, ``[edges]``."""
        if not self.explain:
            return values
        masked: Tensor = self.explain_message(values.unsqueeze(-1), num_nodes)
        return masked.squeeze(-1)


@final
class FittedModule(nn.Module):
    """Logits of every node from features and edges, by a trained network.

    On the graph of the fit it uses the strengths that were learned (the buffer
    ``strength``); on others, or where weights of the edges are given, the network's own
    propagation of a weighted graph. It can be differentiated by ``x`` and
    ``edge_weight``, trained further, copied and moved between devices. While it is
    training, dropout follows torch's seed.
    """

    edge_index: Tensor
    strength: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        graph, strengths = model.held
        if graph.types is not None:
            raise InvalidInput(
                f"the model is of a graph with {graph.types.num_relations} relations, "
                "and a module is called with one edge_index; expected one of a graph "
                "with one type of nodes and one relation."
            )
        if model.members:
            raise InvalidInput(
                f"the model predicts with {len(model.members)} network(s) on graphs of "
                "their own; expected a method that keeps one network on the given "
                "edges, such as GSEBO or Amortised."
            )
        self.backbone = copy.deepcopy(model.backbone)
        self.features_only: nn.Module | None = None
        self.floor = 0.0 if model.scorer is None else model.scorer.floor
        if model.scorer is not None and self.floor:
            self.features_only = copy.deepcopy(model.scorer.features_only)
        for layer in self.backbone.modules():
            if isinstance(layer, MessagePassing):
                # Its edges are in another order than those of a mask.
                layer.explain = False
        self.mask = _Mask()
        self._prepare = _named(model.preparation)
        self._seen: _Seen | None = None
        self.register_buffer("edge_index", graph.edge_index.clone())
        self.register_buffer("strength", strengths.detach().clone())
        if isinstance(model.preparation, Standard):
            self.register_buffer("mean", model.preparation.mean.clone())
            self.register_buffer("scale", model.preparation.scale.clone())
        self.num_features = model.num_features
        self.eval()

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Logits of every node, ``[nodes, classes]``.

        Args:
            x: Features, ``[nodes, channels]``, as they were before the fit.
            edge_index: Edges, ``[2, edges]``; one that is given twice counts once, and
                self-loops are the network's own.
            edge_weight: What each edge weighs before the network normalises, as in
                PyG's ``GCNConv``, ``[edges]``. By default the strengths that were
                learned, where these are the edges of the fit, else ones, also where the
                fit had weights.
        """
        seen = self._laid_out(edge_index, x)
        topology, dtype = seen.topology, self.strength.dtype
        noise = None
        if self.training:
            noise = Noise(int(torch.randint(2**31, ())), 0)
        if edge_weight is None and seen.is_that_of_the_fit:
            strengths = self.strength
        else:
            given = edge_weight
            if given is None:
                given = torch.ones(edge_index.shape[1], dtype=dtype, device=x.device)
            if given.shape != edge_index.shape[1:]:
                raise InvalidInput(
                    f"edge_weight has shape {list(given.shape)}; expected "
                    f"[{edge_index.shape[1]}], one for each edge."
                )
            weights = _on_entries(topology, given.to(dtype))
            strengths = self.backbone.normalise(topology.pattern, weights)
        if self.mask.explain:
            ones = torch.ones(edge_index.shape[1], dtype=dtype, device=x.device)
            masked = _on_entries(topology, self.mask(ones, len(x)))
            strengths = strengths * masked
        features = self._features(x)
        logits: Tensor = self.backbone(features, topology.pattern, strengths, noise)
        if self.features_only is None:
            return logits
        alone = self.features_only(features, topology.pattern, None, noise)
        return grounded(logits, alone, self.floor)

    def _laid_out(self, edge_index: Tensor, x: Tensor) -> _Seen:
        if x.dim() != 2 or x.shape[1] != self.num_features:
            raise InvalidInput(
                f"x has shape {list(x.shape)}; expected [nodes, {self.num_features}], "
                "as in the graph of the fit."
            )
        seen = self._seen
        if (
            seen is None
            or seen.topology.num_nodes != len(x)
            or seen.edge_index.device != edge_index.device
            or not torch.equal(seen.edge_index, edge_index)
        ):
            seen = self._seen = self._look_at(edge_index, x)
        return seen

    def _look_at(self, edge_index: Tensor, x: Tensor) -> _Seen:
        graph = canonicalise(Graph(edge_index=edge_index, num_nodes=len(x)))
        loops = self.backbone.self_loops
        topology = Topology.of(graph, self_loops=loops, device=x.device)
        own = self.edge_index.to(graph.edge_index.device)
        size = topology.num_entries == self.strength.shape[-1]
        same = size and torch.equal(graph.edge_index, own)
        return _Seen(edge_index.clone(), topology, same)

    def _features(self, x: Tensor) -> Features:
        x = x.to(self.strength.dtype)
        if x.layout != torch.strided:
            x = x.to_dense()
        if self._prepare == Rows.name:
            x = normalise_rows(x)
        elif self._prepare == Largest.name:
            x = normalise_rows(x, largest=True)
        elif self._prepare == Standard.name:
            x = (x - self.mean.to(x)) / self.scale.to(x)
        # Only a dense matrix can be differentiated by.
        return x if x.requires_grad else make_features(x, x.dtype, x.device)


def _named(preparation: Preparation | None) -> str:
    """What is done to features, if it is something that can be differentiated."""
    if preparation is None:
        return Given.name
    if not isinstance(preparation, Given | Rows | Largest | Standard):
        raise InvalidInput(
            f"the model makes its features by {preparation.name!r} because its graph "
            "has none; expected a fit with features."
        )
    return preparation.name


def _on_entries(topology: Topology, values: Tensor) -> Tensor:
    """Values of the user's edges at each entry, one at the network's self-loops."""
    entry = topology.graph.entry_of_edge.to(values.device)
    edges = topology.num_edges
    joins = entry < edges
    # An edge that is given several times has the mean of its values.
    total = values.new_zeros(edges).index_add(0, entry[joins], values[joins])
    count = torch.bincount(entry[joins], minlength=edges)
    return torch.cat([total / count, values.new_ones(topology.num_loops)])
