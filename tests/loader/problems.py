"""Bilevel problems on batches of a small graph, in double precision."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from gsebo import generate_graph
from gsebo.bilevel import Hypergradient, HypergradientStep, Reverse, Tree
from gsebo.distributed.group import Alone
from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import Batch, NeighborSampler, Sampler
from gsebo.loader.batch import Subgraph
from gsebo.nn import Backbone, PyGBackbone, make_backbone
from gsebo.structure import AmortisedStrength, Predictions
from gsebo.structure.amortised import BatchedAmortisedStrength
from gsebo.structure.base import BatchedStructure
from gsebo.structure.edge_strength import BatchedEdgeStrength
from gsebo.training import NodeClassification
from gsebo.training.batches import BatchedGraph

CPU = torch.device("cpu")
CLASSES = 3


def data() -> Data:
    """A small graph with more edges into some nodes than a sampler draws."""
    options = {"num_classes": CLASSES, "average_degree": 4.0, "num_features": 5}
    found = generate_graph(30, split="random:40/40/20", seed=1, **options)
    found.x = found.x.double()
    return found


def nodes_of(arrays: GraphArrays, mask: str) -> NDArray[np.int64]:
    return np.flatnonzero(getattr(arrays, mask))


def network(name: str | torch.nn.Module, arrays: GraphArrays) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = make_backbone(
            name,
            in_channels=arrays.num_features,
            hidden_channels=4,
            out_channels=CLASSES,
            num_layers=2,
            dropout=0.5,
            options=None,
        ).double()
    if isinstance(built, PyGBackbone):
        whole = Batch.full(arrays, np.arange(arrays.num_nodes)).edge_index
        pattern = Topology.from_edges(
            whole, arrays.num_nodes, self_loops=built.self_loops, device=CPU
        ).pattern
        every = arrays.features(np.arange(arrays.num_nodes))
        built.prepare(every, pattern, CLASSES)
    return built


def edges(backbone: Backbone, **changes: Any) -> BatchedEdgeStrength:
    loops = backbone.self_loops
    return BatchedEdgeStrength(**{"layers": None, "learn_self_loops": loops, **changes})


def amortised(arrays: GraphArrays, **options: Any) -> BatchedAmortisedStrength:
    structure = AmortisedStrength(scorer_channels=4, residual=True, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BatchedAmortisedStrength(structure, arrays, 2, CPU)


def batched(
    arrays: GraphArrays,
    backbone: Backbone,
    structure: BatchedStructure,
    *,
    sampler: Sampler | None = None,
    batch_size: int = 3,
    batches_per_step: int = 1,
    seed: int = 0,
) -> BatchedGraph:
    drawing = sampler or NeighborSampler(num_neighbors=3)
    return BatchedGraph(
        arrays=arrays,
        sampler=drawing.bind(
            arrays,
            num_layers=backbone.num_propagations,
            batch_size=batch_size,
            seed=seed,
        ),
        backbone=backbone,
        structure=structure,
        weight_decay=1e-3,
        seed=seed,
        device=CPU,
        batches_per_step=batches_per_step,
        group=Alone(),
    )


def seen(problem: NodeClassification, arrays: GraphArrays) -> Predictions:
    """Some class probabilities, the same for a node in every batch."""
    drawn = random((2, arrays.num_nodes, CLASSES), 7).softmax(-1)
    # A part does not know the numbers of its nodes, but their features tell.
    whole = arrays.features(np.arange(arrays.num_nodes))
    place = torch.cdist(torch.as_tensor(problem.features), whole).argmin(-1)
    first, second = drawn[:, place]
    return first, second


def random(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def somewhere(graph: BatchedGraph, ids: Tensor) -> Tree:
    """Outer variables that are not all zero."""
    outer = dict(graph.structure.shared())
    if graph.structure.own is not None:
        outer[graph.structure.own] = torch.zeros(
            *graph.structure.layers, len(ids), dtype=torch.float64
        )
    moved = enumerate(sorted(outer.items()))
    return {name: leaf + 0.1 * random(leaf.shape, n) for n, (name, leaf) in moved}


@dataclass(frozen=True)
class Summed(Hypergradient):
    """Reverse mode, what the batches of a step give added up."""

    direct_term: bool = True

    def run(self, *arguments: Any) -> HypergradientStep:
        found = Reverse(self.direct_term).run(*arguments)
        summed = {name: leaf.sum(0) for name, leaf in found.gradient.items()}
        return found._replace(gradient=summed)


def looking(arrays: GraphArrays, structure: BatchedStructure) -> Any:
    """What a structure looks at on a part, if it looks at anything."""
    is_amortised = isinstance(structure, BatchedAmortisedStrength)
    return partial(seen, arrays=arrays) if is_amortised else None


def part_of(graph: BatchedGraph, nodes: NDArray[np.int64], number: int) -> Subgraph:
    batch = graph.sampler.batch(nodes, number)
    return Subgraph.of(batch, graph.arrays, graph.backbone, graph.device)
