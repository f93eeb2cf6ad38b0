"""Large random graphs with power-law degrees, drawn fast and on any device.

``gsebo.generate_graph`` draws an exact number of edges with classes and homophily; here
only size and shape matter, so that a hundred million edges take seconds on a GPU.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

TRAINING_SHARE, VALIDATION_SHARE = 0.08, 0.02
_EXPONENT = 2.5
_CLASSES = 16


def power_law_graph(
    num_edges: int,
    *,
    degree: int = 20,
    num_features: int = 32,
    seed: int = 0,
    device: str = "cpu",
) -> Data:
    """Draw an undirected graph; both directions of each edge are stored and counted.

    Both ends of an edge are drawn in proportion to weights that follow a power law
    (Chung and Lu, 2002). Loops and repeated pairs are left out, so that there are a few
    edges fewer than asked for.

    Args:
        num_edges: Number of edges, about, each direction counted.
        degree: Mean number of neighbors.
        num_features: Number of features, dense and random.
        seed: The same arguments and seed give the same graph.
        device: Where to draw it and leave it.
    """
    generator = torch.Generator(device).manual_seed(seed)
    nodes = max(num_edges // degree, 2)
    ends = [_ends(num_edges // 2, nodes, degree, generator) for _ in range(2)]
    # Otherwise the hubs would lie side by side in memory.
    names = torch.randperm(nodes, generator=generator, device=device)
    low, high = (names[end] for end in ends)
    low, high = torch.minimum(low, high), torch.maximum(low, high)
    keys = torch.unique((low * nodes + high)[low != high])
    low, high = keys // nodes, keys % nodes
    share = torch.rand(nodes, generator=generator, device=device)
    return Data(
        x=torch.randn(nodes, num_features, generator=generator, device=device),
        edge_index=torch.stack([torch.cat([low, high]), torch.cat([high, low])]),
        y=torch.randint(_CLASSES, (nodes,), generator=generator, device=device),
        train_mask=share < TRAINING_SHARE,
        val_mask=share > 1 - VALIDATION_SHARE,
    )


def _ends(count: int, nodes: int, degree: int, generator: torch.Generator) -> Tensor:
    """Draw nodes with weights ``(number + shift) ** -slope``, by the inverse.

    The shift keeps the largest degree near the root of the number of edges: beyond it
    most draws of a hub would be repeated pairs.
    """
    slope = 1 / (_EXPONENT - 1)
    power = 1 - slope
    shift = (power * degree**0.5 * nodes ** (slope - 0.5)) ** (1 / slope)
    place = torch.rand(
        count, generator=generator, device=generator.device, dtype=torch.float64
    )
    least, most = shift**power, (nodes + shift) ** power
    drawn = (least + place * (most - least)) ** (1 / power) - shift
    return drawn.long().clamp_(0, nodes - 1)
