"""A graph together with edges that may become part of it."""

import torch
from torch import Tensor

from gsebo.methods.prepare import PreparedGraph
from gsebo.structure.candidates import candidate_edges


def with_candidates(
    prepared: PreparedGraph, count: int
) -> tuple[PreparedGraph, Tensor | None]:
    """Add the nearest neighbours of each node by features.

    Args:
        prepared: The graph.
        count: Neighbours of each node.

    Returns:
        The graph with candidate edges, and which edges those are; itself and ``None``
        where there are to be none.
    """
    if not count:
        return prepared, None
    graph = prepared.graph
    given = graph.edge_index.cpu()
    added = candidate_edges(prepared.features, count, graph)
    ground = prepared.with_edges(torch.cat([given, added], dim=1))
    keys, known = (
        each[0] * graph.num_nodes + each[1] for each in (ground.graph.edge_index, given)
    )
    return ground, ~torch.isin(keys, known).to(prepared.device)
