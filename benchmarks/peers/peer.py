"""What both peers share: autograd through every inner step, and the outer step."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from benchmarks.peers.trainer import Trainer


class Peer(Trainer):
    """Keeps the graph of all inner steps, and differentiates the outer loss at once.

    Attributes:
        num_threads: How many threads to work on; ``None`` is as many as torch has.
    """

    num_threads: int | None = None

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
        self.release(network)
        return gradient

    @final
    def outer_step(self) -> None:
        """Take the inner steps and then one step of the strengths."""
        gradient = self.hypergradient()
        with torch.no_grad():
            self.strength.sub_(self.setting.outer_rate * gradient).clamp_(0, 1)

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
