"""Attention over layers from a bidirectional LSTM, in operations with second order."""

from typing import final

import torch
from torch import Tensor, nn


@final
class LayerAttention(nn.Module):
    """Weight of each layer of each node, as in PyG's ``JumpingKnowledge("lstm")``.

    The parameters are those of :class:`torch.nn.LSTM`; the recurrence is written out,
    because the fused one has no second derivative on every device.
    """

    def __init__(self, channels: int, hidden_channels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            channels, hidden_channels, bidirectional=True, batch_first=True
        )
        self.score = nn.Linear(2 * hidden_channels, 1)

    def forward(self, stack: Tensor) -> Tensor:
        """Map ``[nodes, layers, channels]`` to weights ``[nodes, layers]``."""
        layers = list(stack.unbind(1))
        ahead = self._scan(layers, "")
        back = self._scan(layers[::-1], "_reverse")[::-1]
        states = torch.stack(
            [torch.cat(pair, dim=-1) for pair in zip(ahead, back, strict=True)], dim=1
        )
        return torch.softmax(self.score(states).squeeze(-1), dim=-1)

    def _scan(self, layers: list[Tensor], suffix: str) -> list[Tensor]:
        weight_input = getattr(self.lstm, f"weight_ih_l0{suffix}")
        weight_hidden = getattr(self.lstm, f"weight_hh_l0{suffix}")
        bias = getattr(self.lstm, f"bias_ih_l0{suffix}") + getattr(
            self.lstm, f"bias_hh_l0{suffix}"
        )
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
