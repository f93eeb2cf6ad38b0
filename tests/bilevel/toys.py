"""Toy bilevel problems without graphs, with known answers where there are any."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gsebo.bilevel import Tree


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


@dataclass
class Quadratic:
    """L = w'Hw/2 - w'(Bz), F = |w - target|^2/2 + c'z: everything has a closed form."""

    hessian: Tensor
    mixed: Tensor
    target: Tensor
    direct: Tensor

    @classmethod
    def make(cls, size: int = 5, seed: int = 0) -> "Quadratic":
        root = random(size, size, seed=seed)
        hessian = root @ root.T / size + torch.eye(size, dtype=torch.float64)
        mixed, target = random(size, 3, seed=seed + 1), random(size, seed=seed + 2)
        return cls(hessian, mixed, target, random(3, seed=seed + 3))

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        w = weights["w"]
        return w @ self.hessian @ w / 2 - w @ self.mixed @ outer["z"]

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return (weights["w"] - self.target).square().sum() / 2 + self.direct @ outer[
            "z"
        ]

    def start(self, seed: int = 9) -> tuple[Tree, Tree]:
        size = len(self.target)
        return {"w": random(size, seed=seed)}, {"z": random(3, seed=seed + 1)}

    def sgd_answer(
        self, w: Tensor, z: Tensor, lr: float, steps: int
    ) -> tuple[Tensor, ...]:
        """Return w_tau and dw_tau/dz of gradient descent, by its linear recursion."""
        shrink = torch.eye(len(w), dtype=w.dtype) - lr * self.hessian
        slope = torch.zeros_like(self.mixed)
        for _ in range(steps):
            w = shrink @ w + lr * self.mixed @ z
            slope = shrink @ slope + lr * self.mixed
        return w, slope


@dataclass
class Ridge:
    """Ridge regression whose (log) penalty is tuned on held-out rows."""

    rows: Tensor
    labels: Tensor
    held_rows: Tensor
    held_labels: Tensor

    @classmethod
    def make(cls, seed: int = 0) -> "Ridge":
        truth = random(4, seed=seed)
        rows, held = random(12, 4, seed=seed + 1), random(8, 4, seed=seed + 2)
        noise = random(20, seed=seed + 3)
        return cls(rows, rows @ truth + noise[:12], held, held @ truth + noise[12:])

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        w = weights["w"]
        misfit = (self.rows @ w - self.labels).square().sum()
        return (misfit + outer["log_penalty"].exp() * w.square().sum()) / 2

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return (self.held_rows @ weights["w"] - self.held_labels).square().sum() / 2

    def minimum(self, log_penalty: Tensor) -> tuple[Tensor, Tensor]:
        """The minimum w*, and dF/d log_penalty = -penalty (dF/dw)' H^-1 w* there."""
        gram = self.rows.T @ self.rows
        system = gram + log_penalty.exp() * torch.eye(4, dtype=torch.float64)
        w = torch.linalg.solve(system, self.rows.T @ self.labels)
        slope = self.held_rows.T @ (self.held_rows @ w - self.held_labels)
        return w, -log_penalty.exp() * slope @ torch.linalg.solve(system, w)


class Net:
    """A 2-layer tanh net, dropout a pure function of the step, weighted examples."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        self.x = random(10, 4, seed=1, dtype=dtype)
        self.y = random(10, seed=2, dtype=dtype)
        self.held_x = random(6, 4, seed=3, dtype=dtype)
        self.held_y = random(6, seed=4, dtype=dtype)
        self.dtype = dtype

    def predict(self, weights: Tree, x: Tensor, mask: Tensor | float) -> Tensor:
        hidden = torch.tanh(x @ weights["first"] + weights["bias"]) * mask
        return hidden @ weights["last"]

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        mask = (random(10, 3, seed=step) > 0).to(self.dtype) * 2
        errors = (self.predict(weights, self.x, mask) - self.y).square()
        decay = outer["decay"].exp() * sum(w.square().sum() for w in weights.values())
        return (torch.sigmoid(outer["importance"]) * errors).mean() + decay

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        errors = (self.predict(weights, self.held_x, 1.0) - self.held_y).square()
        return errors.mean() + 0.1 * outer["importance"].square().sum()

    def start(self, seed: int = 20) -> tuple[Tree, Tree]:
        shapes = {"first": (4, 3), "bias": (3,), "last": (3,)}
        weights = {
            name: random(*shape, seed=seed + k, dtype=self.dtype)
            for k, (name, shape) in enumerate(shapes.items())
        }
        importance = random(10, seed=seed + 5, dtype=self.dtype)
        return weights, {
            "importance": importance,
            "decay": torch.tensor(-3.0, dtype=self.dtype),
        }


def assert_trees_close(left: Tree, right: Tree, tolerance: float = 1e-10) -> None:
    assert list(left) == list(right)
    for name in left:
        torch.testing.assert_close(
            left[name], right[name], rtol=tolerance, atol=tolerance, msg=name
        )
