"""Networks that look at both ends of an edge and say whether to keep it."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from gsebo.sparse import SparseFeatures, row_expand
from gsebo.structure.topology import Topology


@final
class EdgeNetwork(nn.Module):
    """One logit for every edge, from the representations of its ends.

        p = ReLU(h_source W_source + b_source),   q = ReLU(h_target W_target + b_target)
        w = [p || q] W + b,   or   ReLU([p || q] W + b) W_out + b_out

    A product with [p || q] is a sum of one for each end. So what is computed for every
    edge is as wide as the pair layer, or a single number where there is none.

    Args:
        in_channels: Width of h.
        channels: Width of p and q.
        pair_channels: Width of the layer that sees both ends, if there is one.
    """

    def __init__(
        self, in_channels: int, channels: int, pair_channels: int | None
    ) -> None:
        super().__init__()
        self.source_weight = _he(in_channels, channels)
        self.source_bias = nn.Parameter(torch.zeros(channels))
        self.target_weight = _he(in_channels, channels)
        self.target_bias = nn.Parameter(torch.zeros(channels))
        self.joint_weight = _he(2 * channels, pair_channels or 1)
        self.joint_bias = nn.Parameter(torch.zeros(pair_channels or 1))
        self.has_pair_layer = pair_channels is not None
        if pair_channels is not None:
            self.out_weight = _he(pair_channels, 1)
            self.out_bias = nn.Parameter(torch.zeros(1))

    def forward(self, h: Tensor | SparseFeatures, graph: Topology) -> Tensor:
        """Return the logits, ``[edges]``.

        Args:
            h: Representations of the nodes, ``[nodes, in_channels]``.
            graph: Entries; the self-loops get no logit.
        """
        source = torch.relu(h @ self.source_weight + self.source_bias)
        target = torch.relu(h @ self.target_weight + self.target_bias)
        from_source, from_target = self.joint_weight.chunk(2)
        # row_expand has a derivative that adds up in the same order on every device.
        joint = (
            row_expand(graph.pattern.T, (source @ from_source).T.contiguous())
            + row_expand(graph.pattern, (target @ from_target).T.contiguous())
        )[:, : graph.num_edges]
        joint = joint + self.joint_bias.unsqueeze(-1)
        if not self.has_pair_layer:
            return joint.squeeze(0)
        return (self.out_weight.T @ torch.relu(joint)).squeeze(0) + self.out_bias


@final
class EdgeNetworks(nn.Module):
    """One network for each layer of a backbone.

    Args:
        widths: Width of the input of each layer.
        channels: Of each network.
        pair_channels: Of each network.
    """

    def __init__(
        self, widths: Sequence[int], channels: int, pair_channels: int | None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EdgeNetwork(width, channels, pair_channels) for width in widths
        )

    def forward(
        self, layer: int, h: Tensor | SparseFeatures, graph: Topology
    ) -> Tensor:
        """Return the logits of one layer, ``[edges]``."""
        logits: Tensor = self.layers[layer](h, graph)
        return logits


def _he(rows: int, columns: int) -> nn.Parameter:
    """He-normal initial weights (fan-in ``rows``)."""
    weight = torch.empty(columns, rows)
    nn.init.kaiming_normal_(weight, nonlinearity="relu")
    return nn.Parameter(weight.T.contiguous())
