"""Random graphs, directed or not, laid out as structures see them."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph, canonicalise
from gsebo.structure import GraphContext

examples = settings(deadline=None, max_examples=60)

EDGES = {
    # 0 - 1, 1 - 2 both ways; 3 -> 0 and 2 -> 3 one way; 4 alone.
    "directed": [[0, 1, 1, 2, 3, 2], [1, 0, 2, 1, 0, 3]],
    "undirected": [[0, 1, 1, 2, 3, 0, 2, 3], [1, 0, 2, 1, 0, 3, 3, 2]],
    "no edges": [[], []],
}
NUM_NODES = 5


def graph(edge_index: Tensor | list[list[int]], num_nodes: int) -> CanonicalGraph:
    edges = torch.as_tensor(edge_index, dtype=torch.int64).reshape(2, -1)
    return canonicalise(Data(edge_index=edges, num_nodes=num_nodes))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 7) -> CanonicalGraph:
    """Any directed graph: edges one way, both ways, none."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=20))
    return graph(torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).mT, num_nodes)


def ground(where: Topology, start: Tensor, num_layers: int) -> GraphContext:
    """What a structure needs that looks at neither features nor normalisation."""
    return GraphContext(
        graph=where,
        start=start,
        num_layers=num_layers,
        features=torch.ones(where.num_nodes, 1, dtype=start.dtype),
        normalise=lambda pattern, weights: weights,
    )
