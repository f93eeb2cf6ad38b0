"""Training with ``torch.optim``: nothing to differentiate, so nothing to get wrong."""

from typing import final

import torch
from torch import nn

from benchmarks.peers.trainer import NetworkTrainer


@final
class PlainTraining(NetworkTrainer):
    """What differentiable optimisers claim to be; finite differences take its word."""

    def train(self) -> nn.Module:
        """Take the inner steps; return the trained network, ready to evaluate."""
        kind = torch.optim.Adam if self.setting.optimizer == "adam" else torch.optim.SGD
        optimizer = kind(
            self.network.parameters(),
            lr=self.setting.inner_rate,
            weight_decay=self.setting.weight_decay,
        )
        self.network.train()
        for _ in range(self.setting.tau):
            optimizer.zero_grad()
            self.inner_loss(self.network).backward()
            optimizer.step()
        return self.network.eval()
