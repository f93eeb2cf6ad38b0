"""PyG layers and TorchOpt's differentiable optimisers, as its guide uses them."""

from typing import final

import torchopt
from torch import nn

from benchmarks.peers.peer import NetworkPeer
from benchmarks.setting import Setting
from benchmarks.task import Task

# Added under the root of Adam's second moment, whose derivative at zero is infinite.
# Its own root adds to Adam's 1e-8: 1e-20 would change that by one per cent.
EPS_ROOT = 1e-30


@final
class TorchOptPeer(NetworkPeer):
    """Trains with ``torchopt.MetaAdam`` or ``torchopt.MetaSGD``.

    Args:
        task: The graph and where training starts.
        setting: What to train and how.
        eps_root: Of Adam; TorchOpt's own default is 0.
    """

    def __init__(
        self, task: Task, setting: Setting, *, eps_root: float = EPS_ROOT
    ) -> None:
        super().__init__(task, setting)
        rates = {"lr": setting.inner_rate, "weight_decay": setting.weight_decay}
        self._optimizer = (
            torchopt.MetaAdam(self.network, **rates, eps_root=eps_root)
            if setting.optimizer == "adam"
            else torchopt.MetaSGD(self.network, **rates)
        )

    def train(self) -> nn.Module:
        """Take the inner steps; return the trained network, ready to evaluate."""
        self.network.train()
        for _ in range(self.setting.tau):
            self._optimizer.step(self.inner_loss(self.network))
        return self.network.eval()

    def release(self, network: nn.Module) -> None:
        """Let go of the graph; the next outer step starts where this one ended."""
        torchopt.stop_gradient(network)
        torchopt.stop_gradient(self._optimizer)
