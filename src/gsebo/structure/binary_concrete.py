"""Coin flips made smooth, by their logits.

    B = (l + log u - log(1 - u)) / t,   A = sigmoid(B),   u uniform in (0, 1)

(Maddison, Mnih and Teh, ICLR 2017.) A exceeds 1/2 with probability sigmoid(l), whatever
the temperature t; the lower it is, the nearer A is to 0 or 1. B follows the logistic
distribution with mean l / t and scale 1 / t. Densities are taken of B: their ratios are
those of A, and nothing is lost where A rounds to 0 or 1.
"""

import math
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import softplus


class BinaryConcrete(NamedTuple):
    """One smooth coin flip for each logit.

    Attributes:
        logits: l, ``[..., flips]``.
        temperature: t, above 0.
    """

    logits: Tensor
    temperature: float

    def sample(self, uniform: Tensor) -> Tensor:
        """Draw B, with a derivative by the logits.

        Args:
            uniform: u, one number in (0, 1) for each logit.
        """
        noise = uniform.log() - (-uniform).log1p()
        return (self.logits + noise) / self.temperature

    def log_density(self, b: Tensor) -> Tensor:
        """Logarithm of the density of B at ``b``, ``[..., flips]``."""
        centred = self.temperature * b - self.logits
        return math.log(self.temperature) - centred - 2 * softplus(-centred)


def divergence_of_sample(
    posterior: BinaryConcrete, prior: BinaryConcrete, b: Tensor
) -> Tensor:
    """Log q(b) - log p(b), summed over the flips: its mean is KL(q || p).

    Args:
        posterior: q.
        prior: p.
        b: Drawn by ``posterior.sample``.
    """
    # In log q(b) the logits cancel: t b - l is the noise. So it has no derivative.
    fixed = BinaryConcrete(posterior.logits.detach(), posterior.temperature)
    return (fixed.log_density(b.detach()) - prior.log_density(b)).sum(-1)
