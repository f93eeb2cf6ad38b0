"""What the peers share: autograd through every inner step, and the outer step."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from benchmarks.peers.networks import Network
from benchmarks.peers.trainer import NetworkTrainer, Trainer


class Peer(Trainer):
    """Keeps the graph of all inner steps, and differentiates the outer loss at once.

    Attributes:
        num_threads: How many threads to work on; ``None`` is as many as torch has.
        last_loss: Outer loss of the last hypergradient: after its inner steps, with the
            strengths from before the outer step.
    """

    num_threads: int | None = None
    last_loss: float

    @abstractmethod
    def hypergradient(self) -> Tensor:
        """Take the inner steps; return the derivative by each entry's strength."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights by now."""

    @abstractmethod
    def predict(self, weights: dict[str, Tensor], strength: Tensor) -> Tensor:
        """Class of every node of the whole graph, ``[nodes]``."""

    @final
    def outer_step(self) -> None:
        """Take the inner steps and then one step of the strengths."""
        gradient = self.hypergradient()
        with torch.no_grad():
            self.strength.sub_(gradient, alpha=self.setting.outer_rate).clamp_(0, 1)

    @final
    @contextmanager
    def threads(self) -> Iterator[None]:
        """Work on ``num_threads`` threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.num_threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class NetworkPeer(NetworkTrainer, Peer):
    """PyG's layers, trained by a differentiable optimiser of some library."""

    @abstractmethod
    def release(self, network: nn.Module) -> None:
        """Let go of the graph; the next outer step starts where this one ended."""

    @final
    def hypergradient(self) -> Tensor:
        """Take the inner steps; return the derivative by each entry's strength."""
        network = self.train()
        direct = self.setting.direct_term
        strength = self.strength if direct else self.strength.detach()
        loss = self.outer_loss(network, strength)
        (gradient,) = torch.autograd.grad(loss, self.strength)
        self.last_loss = float(loss.detach())
        self.release(network)
        return gradient

    @final
    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights by now."""
        state = self.network.state_dict()
        return {name: weight.detach().clone() for name, weight in state.items()}

    @final
    @torch.no_grad()
    def predict(self, weights: dict[str, Tensor], strength: Tensor) -> Tensor:
        """Class of every node of the whole graph, ``[nodes]``."""
        task = self.task
        network = Network(task, self.setting).eval()
        network.load_state_dict(weights)
        logits: Tensor = network(task.x, task.edge_index, strength)
        return logits.argmax(dim=-1)
