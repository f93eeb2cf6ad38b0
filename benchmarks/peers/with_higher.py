"""PyG layers and Facebook's ``higher``, as its guide uses them."""

from typing import final

import higher
import torch
from torch import Tensor, nn

from benchmarks.peers.peer import NetworkPeer
from benchmarks.setting import Setting
from benchmarks.task import Task


@final
class HigherPeer(NetworkPeer):
    """Trains inside ``higher.innerloop_ctx``.

    Args:
        task: The graph and where training starts.
        setting: What to train and how.
    """

    def __init__(self, task: Task, setting: Setting) -> None:
        super().__init__(task, setting)
        kind = torch.optim.Adam if setting.optimizer == "adam" else torch.optim.SGD
        self._optimizer = kind(
            self.network.parameters(),
            lr=setting.inner_rate,
            weight_decay=setting.weight_decay,
        )
        self._state: list[dict[str, Tensor | int]] = []

    def train(self) -> nn.Module:
        """Take the inner steps; return the trained network, ready to evaluate."""
        self.network.train()
        with higher.innerloop_ctx(self.network, self._optimizer) as (network, steps):
            for _ in range(self.setting.tau):
                steps.step(self.inner_loss(network))
        (moments,) = steps.state  # one group of parameters
        self._state = [moments[number] for number in sorted(moments)]
        return network.eval()

    @torch.no_grad()
    def release(self, network: nn.Module) -> None:
        """Let go of the graph; the next outer step starts where this one ended.

        A context of ``higher`` starts from the plain network and optimiser, so that
        weights and moments have to be carried over to them.
        """
        weights = list(self.network.parameters())
        for weight, trained in zip(weights, network.parameters(), strict=True):
            weight.copy_(trained)
        for weight, moments in zip(weights, self._state, strict=False):
            self._optimizer.state[weight] = {
                name: value.detach() if isinstance(value, Tensor) else value
                for name, value in moments.items()
            }
        self._state = []
