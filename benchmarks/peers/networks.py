"""The four networks from PyG's layers, with a strength for every message.

They compute what gsebo's backbones compute, and start from the same weights. The order
of operations is PyG's: ``SAGEConv`` aggregates the features before it transforms them.
"""

from itertools import pairwise
from typing import ClassVar, Optional, final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, relu
from torch_geometric.nn import GATConv, GCNConv, JumpingKnowledge, SAGEConv
from torch_geometric.typing import OptTensor

from benchmarks.setting import LAYERS, Setting
from benchmarks.task import Task

_HEADS = 8


@final
class StrengthGATConv(GATConv):
    """Attention times strength, which is handed in as the edges' attribute."""

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: OptTensor,
        edge_attr: OptTensor,
        index: Tensor,
        ptr: OptTensor,
        dim_size: Optional[int],  # noqa: UP045 - PyG cannot read "int | None"
    ) -> Tensor:
        """Return the attention of each edge and head, times the edge's strength."""
        alpha = super().edge_update(alpha_j, alpha_i, None, index, ptr, dim_size)
        return alpha * edge_attr.unsqueeze(-1)


@final
class StrengthSAGEConv(SAGEConv):
    """A sum of neighbors by strength; the mean, where the strengths are 1 / degree."""

    # PyG would otherwise read the arguments from the parent's source.
    propagate_type: ClassVar = {"x": Tensor, "strength": Tensor}

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, strength: Tensor) -> Tensor:
        """Aggregate, transform, and add the node itself: as the parent does."""
        neighbors = self.propagate(edge_index, x=x, strength=strength)
        return self.lin_l(neighbors) + self.lin_r(x)

    def message(self, x_j: Tensor, strength: Tensor) -> Tensor:
        """Weigh the neighbor."""
        return strength.view(-1, 1) * x_j


@final
class Network(nn.Module):
    """Dropout before each layer, an activation between layers.

    Args:
        task: Sizes and initial weights.
        setting: Which network.
    """

    def __init__(self, task: Task, setting: Setting) -> None:
        super().__init__()
        self.dropout = setting.dropout
        self.activation = elu if setting.backbone == "gat" else relu
        self.read_out = None
        features, classes = task.x.shape[1], task.num_classes
        sizes = [features, *[setting.hidden] * (LAYERS - 1), classes]
        if setting.backbone == "gat":
            layers = _attention_layers(sizes, setting.dropout)
        elif setting.backbone == "sage":
            layers = [StrengthSAGEConv(*pair) for pair in pairwise(sizes)]
        elif setting.backbone == "gcn":
            layers = [GCNConv(*pair, normalize=False) for pair in pairwise(sizes)]
        else:
            sizes = [features, *[setting.hidden] * LAYERS]
            layers = [GCNConv(*pair, normalize=False) for pair in pairwise(sizes)]
            self.jump = JumpingKnowledge("cat")
            self.read_out = nn.Linear(LAYERS * setting.hidden, classes)
        self.layers = nn.ModuleList(layers)
        self.to(task.x.device, task.x.dtype)
        _copy_weights(self, task.weights)

    def forward(self, x: Tensor, edge_index: Tensor, strength: Tensor) -> Tensor:
        """Return the logits of every node, ``[nodes, classes]``."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            if outputs:
                x = self.activation(outputs[-1])
            x = dropout(x, self.dropout, training=self.training)
            outputs.append(layer(x, edge_index, strength))
        if self.read_out is None:
            return outputs[-1]
        return self.read_out(self.jump([relu(output) for output in outputs]))


def _attention_layers(sizes: list[int], rate: float) -> list[nn.Module]:
    """Eight heads side by side in the hidden layers, one in the last."""
    layers: list[nn.Module] = []
    width = sizes[0]
    for number, size in enumerate(sizes[1:], start=1):
        heads = 1 if number == LAYERS else _HEADS
        layers.append(
            StrengthGATConv(
                width, size, heads=heads, dropout=rate, add_self_loops=False
            )
        )
        width = heads * size
    return layers


@torch.no_grad()
def _copy_weights(network: Network, weights: dict[str, Tensor]) -> None:
    for number, layer in enumerate(network.layers):
        own = {
            name.removeprefix(f"layers.{number}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{number}.")
        }
        if isinstance(layer, SAGEConv):
            layer.lin_l.weight.copy_(own["weight"].T)
            layer.lin_l.bias.copy_(own["bias"])
            layer.lin_r.weight.copy_(own["self_weight"].T)
            continue
        layer.lin.weight.copy_(own["weight"].T)
        layer.bias.copy_(own["bias"])
        if isinstance(layer, GATConv):
            layer.att_dst.copy_(own["attention"][None, ..., 0])
            layer.att_src.copy_(own["attention"][None, ..., 1])
    if network.read_out is not None:
        network.read_out.weight.copy_(weights["weight"].T)
        network.read_out.bias.copy_(weights["bias"])
