"""The engine without any graph: one weight decay per feature, learned on validation."""

import torch

from gsebo.bilevel import Reverse, adam, check_problem


class Ridge:
    """Linear regression; the outer variables are the log penalties of the features."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(60, 20, generator=generator, dtype=torch.float64)
        noise = torch.randn(60, generator=generator, dtype=torch.float64)
        y = x[:, 0] - 2 * x[:, 1] + noise  # the other 18 features mean nothing
        self.train, self.validation = (x[:30], y[:30]), (x[30:], y[30:])

    def inner_loss(
        self,
        weights: dict[str, torch.Tensor],
        outer: dict[str, torch.Tensor],
        step: int,
    ) -> torch.Tensor:
        """Training error plus the penalties."""
        x, y = self.train
        penalty = (outer["log_penalty"].exp() * weights["w"] ** 2).sum()
        return ((x @ weights["w"] - y) ** 2).mean() + penalty

    def outer_loss(
        self, weights: dict[str, torch.Tensor], outer: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Validation error."""
        x, y = self.validation
        return ((x @ weights["w"] - y) ** 2).mean()


def main() -> None:
    problem, optimizer, engine = Ridge(), adam(0.1), Reverse()
    weights = {"w": torch.zeros(20, dtype=torch.float64)}
    outer = {"log_penalty": torch.full((20,), -3.0, dtype=torch.float64)}
    check = check_problem(problem, optimizer, weights, outer, 20)
    print(f"hypergradient against finite differences: {check.relative_error:.0e}")
    for step in range(61):
        gradient, _, loss = engine(problem, optimizer, weights, outer, 50)
        outer = {"log_penalty": outer["log_penalty"] - 5 * gradient["log_penalty"]}
        if step % 30 == 0:
            print(f"validation error after {step} outer steps: {loss:.3f}")
    penalty = outer["log_penalty"].exp()
    print(f"penalty of the two useful features {penalty[:2].mean():.4f}")
    print(f"penalty of the others              {penalty[2:].mean():.4f}")


if __name__ == "__main__":
    main()
