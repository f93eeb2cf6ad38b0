"""Amortised strengths on a graph that is only ever read in parts."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.arrays import GraphArrays
from gsebo.data.mapped import gather_rows
from gsebo.structure.amortised import AmortisedStrength
from gsebo.structure.base import Structure
from gsebo.structure.evidence import Features, FeatureWeights
from gsebo.structure.global_evidence import raw_evidence
from gsebo.structure.in_parts import PartGround, StructureInParts
from gsebo.structure.some_nodes import features_of

Numbers = NDArray[np.int64]

# The units of features and evidence are measured on so many nodes and edges at most.
_MEASURED = 2**17
# Of so many edges all evidence is gathered once and kept: some 60 MB.
_KEPT = 2**21
_SHARED = ("hidden", "shift", "output")


@final
class AmortisedInParts(StructureInParts):
    """One function for all edges, and what each has of its own beside it.

    The hidden layer is drawn by torch's seed.

    Args:
        structure: The function, before it is laid over any graph.
        arrays: The whole graph.
        num_layers: Number of propagations of the network.
        device: Where to compute.
    """

    def __init__(
        self,
        structure: AmortisedStrength,
        arrays: GraphArrays,
        num_layers: int,
        device: torch.device,
    ) -> None:
        self.structure = structure
        self.own = "own" if structure.residual else None
        self.layers = (num_layers,) if structure.per_layer else ()
        self._arrays = arrays
        nodes = _spread(arrays.num_nodes, _MEASURED)
        rows = features_of(arrays, torch.from_numpy(nodes), arrays.dtype, device)
        structure.take_feature_weights(FeatureWeights.of(rows))
        sample = self._sample(_spread(arrays.num_edges, _MEASURED), device)
        structure.measure(sample, num_layers)
        self._all: Tensor | None = None
        if arrays.num_edges <= _MEASURED:
            self._all = sample
        elif arrays.num_edges <= _KEPT:
            self._all = self._sample(np.arange(arrays.num_edges), device)

    def shared(self) -> dict[str, Tensor]:
        """The parameters of the function."""
        named = dict(self.structure.named_parameters())
        return {name: named[name].detach().clone() for name in _SHARED}

    def over(self, ground: PartGround) -> Structure:
        """Gather the evidence of the edges of a part."""
        if self._all is not None:
            return self.structure.over(ground, self._all[ground.edges])
        edges = ground.graph.graph.edge_index
        raw = self._raw(ground.features, edges, ground.nodes)
        return self.structure.over(ground, raw)

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """Take off a share of what was learned; everything is allowed."""
        return self.structure.project(outer)

    def _raw(self, features: Features, edges: Tensor, nodes: Tensor) -> Tensor:
        structure = self.structure
        weights = FeatureWeights(structure.centre, structure.scale)
        found = raw_evidence(
            self._arrays, features, edges, nodes, weights, structure.columns
        )
        # No candidates are among the edges of the graph.
        return torch.nn.functional.pad(found, (0, 1))

    def _sample(self, edges: Numbers, device: torch.device) -> Tensor:
        """Evidence of some edges of the whole graph."""
        arrays = self._arrays
        source = gather_rows(arrays.source, edges).astype(np.int64)
        target = np.searchsorted(arrays.indptr, edges, side="right") - 1
        nodes, local = np.unique(np.stack([source, target]), return_inverse=True)
        rows = features_of(arrays, torch.from_numpy(nodes), arrays.dtype, device)
        ends = torch.from_numpy(local.reshape(2, -1))
        found = self._raw(rows, ends, torch.from_numpy(nodes))
        arrays.release()
        return found


def _spread(count: int, most: int) -> Numbers:
    """At most so many numbers below ``count``, evenly spread; all of a few."""
    return np.arange(count) if count <= most else np.arange(most) * count // most
