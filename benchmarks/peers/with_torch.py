"""What a careful engineer writes in plain torch: nothing that need not be computed.

Sparse features, only the part of the graph that the two losses depend on, all weights
in one vector, a step of Adam as one node of the graph. Autograd differentiates through
every inner step, as it does for the other peers.
"""

import math
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from benchmarks.peers.peer import Peer
from benchmarks.peers.products import weights_only
from benchmarks.peers.reach import Reach
from benchmarks.peers.reach_networks import ReachNetwork
from benchmarks.setting import Setting
from benchmarks.task import Task

_FIRST, _SECOND, _EPS = 0.9, 0.999, 1e-8


@final
class TorchPeer(Peer):
    """Unrolls the inner steps on the reach of the training nodes.

    Args:
        task: The graph and where training starts.
        setting: What to train and how.
    """

    def __init__(self, task: Task, setting: Setting) -> None:
        super().__init__(task, setting)
        self._inner, self._outer = (
            Reach(task, nodes) for nodes in (task.train, task.validation)
        )
        self._training, self._validation = (
            ReachNetwork(task, setting, reach) for reach in (self._inner, self._outer)
        )
        weights = [weight.detach().flatten() for weight in task.weights.values()]
        self._flat = torch.cat(weights)
        self._mean = torch.zeros_like(self._flat)
        self._square = torch.zeros_like(self._flat)
        self._count = 0

    def hypergradient(self) -> Tensor:
        """Take the inner steps; return the derivative by each entry's strength."""
        flat = self._trained()
        direct = self.setting.direct_term
        loss = self._outer_loss(
            flat, self.strength if direct else self.strength.detach()
        )
        (gradient,) = torch.autograd.grad(loss, self.strength)
        self.last_loss = float(loss.detach())
        return gradient

    def trained_loss(self, strength: Tensor) -> float:
        """Train with one's own strengths; the outer loss with these."""
        flat = self._trained()
        with torch.no_grad():
            return float(self._outer_loss(flat, strength))

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights by now."""
        given = self.task.weights
        parts = self._flat.split([weight.numel() for weight in given.values()])
        return {
            name: part.view(weight.shape).clone()
            for (name, weight), part in zip(given.items(), parts, strict=True)
        }

    @torch.no_grad()
    def predict(self, weights: dict[str, Tensor], strength: Tensor) -> Tensor:
        """Class of every node of the whole graph, ``[nodes]``."""
        all_nodes = torch.arange(len(self.task.x), device=strength.device)
        everything = Reach(self.task, all_nodes)
        network = ReachNetwork(self.task, self.setting, everything)
        flat = torch.cat([weights[name].flatten() for name in self.task.weights])
        logits = network(flat, everything.strengths(strength), training=False)
        return logits.argmax(dim=-1)

    def _trained(self) -> Tensor:
        """Take the inner steps; the weights after them, with the graph behind them."""
        # Selected once for all steps.
        strengths = self._inner.strengths(self.strength)
        flat = self._flat.requires_grad_()
        mean, square = self._mean, self._square
        for _ in range(self.setting.tau):
            scores = self._training(flat, strengths, training=True)
            loss = self._inner.loss(scores, "mean")
            with weights_only():
                (gradient,) = torch.autograd.grad(loss, flat, create_graph=True)
            self._count += 1
            if self.setting.optimizer == "adam":
                flat, mean, square = _AdamStep.apply(
                    flat, gradient, mean, square, self._count, self.setting
                )
            else:
                rate, decay = self.setting.inner_rate, self.setting.weight_decay
                flat = flat.mul(1 - rate * decay).sub(gradient, alpha=rate)
        self._flat, self._mean, self._square = (
            tensor.detach() for tensor in (flat, mean, square)
        )
        return flat

    def _outer_loss(self, flat: Tensor, strength: Tensor) -> Tensor:
        """Summed loss of the validation nodes."""
        strengths = self._outer.strengths(strength)
        scores = self._validation(flat, strengths, training=False)
        return self._outer.loss(scores, "sum")


@final
class _AdamStep(Function):
    """One step of ``torch.optim.Adam``; the inner steps are differentiated once.

    Where the second moment is zero every gradient so far was zero, and nothing that the
    strengths change has been or will be passed on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        flat: Tensor,
        gradient: Tensor,
        mean: Tensor,
        square: Tensor,
        count: int,
        setting: Setting,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.decay = setting.weight_decay
        size = setting.inner_rate / (1 - _FIRST**count)
        scale = math.sqrt(1 - _SECOND**count)
        # Both moments' corrections in two numbers: size * scale and eps * scale.
        ctx.size, shift = size * scale, _EPS * scale
        gradient = torch.add(gradient, flat, alpha=ctx.decay)
        mean = torch.lerp(mean, gradient, 1 - _FIRST)
        square = square.mul(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
        root = square.sqrt()
        divisor = root + shift
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, mean, root, divisor)
        moved = torch.addcdiv(flat, mean, divisor, value=-ctx.size)
        return moved, mean, square

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, moved: Tensor, by_mean: Tensor | None, by_square: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gradient, mean, root, divisor = ctx.saved_tensors
        # Over and under the fraction stands the root, so that it is 0 where that is;
        # masks would take longer.
        least = torch.finfo(root.dtype).tiny ** 0.5
        below = root.clamp_min(least).mul_(divisor)
        quotient = moved.mul(root).div_(below)
        to_mean = quotient.mul(-ctx.size)
        to_square = quotient.mul_(mean).div_(below).mul_(ctx.size / 2)
        if by_mean is not None:
            to_mean.add_(by_mean)
        if by_square is not None:
            to_square.add_(by_square)
        to_gradient = to_mean.mul(1 - _FIRST)
        to_gradient.addcmul_(gradient, to_square, value=2 * (1 - _SECOND))
        to_flat = torch.add(moved, to_gradient, alpha=ctx.decay)
        return (
            to_flat,
            to_gradient,
            to_mean.mul_(_FIRST),
            to_square.mul_(_SECOND),
            None,
            None,
        )
