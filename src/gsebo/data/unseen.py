"""Nodes that a fit may not see: taken out before it, and put back to predict."""

import torch
from torch_geometric.data import Data

from gsebo.data.features import take_rows
from gsebo.errors import InvalidInput

_OF_NODES = ("y", "train_mask", "val_mask", "test_mask", "node_id")


def has_unseen(data: Data) -> bool:
    """Whether some of the nodes are not for the eyes of a fit."""
    return "unseen_mask" in data and data.unseen_mask is not None


def refuse_unseen(data: Data) -> None:
    """Raise if a fit is about to see nodes that it may not."""
    if has_unseen(data):
        raise InvalidInput(
            f"unseen_mask marks {int(data.unseen_mask.sum())} nodes that a fit may not "
            "see: expected the graph without them, gsebo.data.visible_part(data)."
        )


def visible_part(data: Data) -> Data:
    """Return the graph without the nodes of ``unseen_mask`` and without their edges.

    Nodes and edges keep their order, and nodes their ``node_id``, which makes them
    known again in the whole graph.
    """
    visible = ~data.unseen_mask.cpu()
    nodes = visible.nonzero().squeeze(-1)
    place = torch.full(visible.shape, -1)
    place[nodes] = torch.arange(nodes.numel())
    edges = place[data.edge_index.cpu()]
    part = Data(edge_index=edges[:, (edges >= 0).all(0)].to(data.edge_index))
    if "x" in data and data.x is not None:
        part.x = take_rows(data.x, nodes.to(data.x.device))
    else:
        part.num_nodes = nodes.numel()
    for key in _OF_NODES:
        if key in data and data[key] is not None:
            part[key] = data[key][nodes.to(data[key].device)]
    return part
