"""Jumping knowledge network (Xu et al., ICML 2018) with edge strengths."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from gsebo.nn.base import BY_ROW, SYMMETRIC, LayeredBackbone, glorot
from gsebo.nn.gcn import GCNLayer
from gsebo.sparse import Noise


@final
class LayerAttention(nn.Module):
    """Weight of each layer of each node, as in PyG's ``JumpingKnowledge("lstm")``.

    The parameters are those of :class:`torch.nn.LSTM`; the recurrence is written out,
    because the fused one has no second derivative on every device.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, width, bidirectional=True, batch_first=True)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, stack: Tensor) -> Tensor:
        """Map ``[nodes, layers, channels]`` to weights ``[nodes, layers]``."""
        layers = list(stack.unbind(1))
        ahead = self._scan(layers, "")
        back = self._scan(layers[::-1], "_reverse")[::-1]
        states = torch.cat([torch.stack(ahead, 1), torch.stack(back, 1)], dim=-1)
        return torch.softmax(self.score(states).squeeze(-1), dim=-1)

    def _scan(self, layers: list[Tensor], suffix: str) -> list[Tensor]:
        weight_input, weight_hidden, bias_input, bias_hidden = (
            getattr(self.lstm, f"{name}_l0{suffix}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        bias = bias_input + bias_hidden
        hidden = layers[0].new_zeros(layers[0].shape[0], weight_hidden.shape[1])
        cell = hidden
        outputs = []
        for layer in layers:
            gates = layer @ weight_input.T + hidden @ weight_hidden.T + bias
            enter, forget, new, leave = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            hidden = torch.sigmoid(leave) * torch.tanh(cell)
            outputs.append(hidden)
        return outputs


@final
@dataclass(kw_only=True, eq=False, repr=False)
class JKNet(LayeredBackbone):
    """Convolutions whose outputs are all seen by a linear read-out.

    Args:
        convolution: ``"gcn"``; ``"sage"``, GraphSAGE with the ``"gcn"`` aggregator, or
            ``"sage-mean"`` with the mean of the neighbors.
        mode: How the layers are joined: ``"concat"``, ``"max"``, or ``"lstm"``
            (attention over the layers of each node from a bidirectional LSTM).
    """

    traceable = True
    joins_layers = True
    reads_out = True
    num_layers: int = 3
    convolution: Literal["gcn", "sage", "sage-mean"] = "gcn"
    mode: Literal["concat", "max", "lstm"] = "concat"

    def __post_init__(self) -> None:
        self.self_loops = self.convolution != "sage-mean"
        super().__post_init__()
        self.normalisation = SYMMETRIC if self.convolution == "gcn" else BY_ROW
        hidden, width = self.hidden_channels, self.num_layers * self.hidden_channels
        lstm = self.mode == "lstm"
        self.attention = LayerAttention(hidden, width // 2) if lstm else None
        joined = width if self.mode == "concat" else hidden
        self.weight = glorot(joined, self.out_channels)
        self.bias = nn.Parameter(torch.zeros(self.out_channels))

    def layer(self, number: int, in_channels: int, out_channels: int) -> GCNLayer:
        return GCNLayer(
            in_channels, self.hidden_channels, self_weight=not self.self_loops
        )

    def read_out(self, outputs: list[Tensor], noise: Noise | None = None) -> Tensor:
        hidden = [torch.relu(output) for output in outputs]
        if self.mode == "concat":
            return torch.cat(hidden, dim=-1) @ self.weight + self.bias
        stack = torch.stack(hidden, dim=1)  # [nodes, layers, channels]
        if self.attention is None:
            return stack.amax(dim=1) @ self.weight + self.bias
        share: Tensor = self.attention(stack)
        joined = (stack * share.unsqueeze(-1)).sum(dim=1)
        return joined @ self.weight + self.bias
