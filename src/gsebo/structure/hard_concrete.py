"""Gates in [0, 1] that are exactly 0 or 1 with positive probability.

    s = sigmoid((log u - log(1 - u) + w) / t),   u uniform in (0, 1)
    gate = min(max(s (zeta - gamma) + gamma, 0), 1),   gamma <= 0 and zeta >= 1

(Louizos, Welling and Kingma, ICLR 2018.) A gate is open, that is not 0, where s exceeds
-gamma / (zeta - gamma). The noise is logistic, so that has the probability
sigmoid(w - t log(-gamma / zeta)).
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

# How near to 0 and 1 the uniform numbers may come: the noise stays within ±16.
_MARGIN = 1e-7


@final
@dataclass(frozen=True)
class HardConcrete:
    """A stretched and clipped binary concrete variable for every logit.

    Attributes:
        gamma: Lower end of the stretch; 0 means that no gate closes for good.
        zeta: Upper end of the stretch.
    """

    gamma: float = -0.1
    zeta: float = 1.1

    def sample(self, logits: Tensor, uniform: Tensor, temperature: float) -> Tensor:
        """Draw gates.

        Args:
            logits: w.
            uniform: u, one number in (0, 1) for each logit.
            temperature: t; the lower, the nearer the gates are to 0 or 1.
        """
        drawn = uniform.clamp(_MARGIN, 1 - _MARGIN)
        noise = drawn.log() - (-drawn).log1p()
        return self._clipped(torch.sigmoid((noise + logits) / temperature))

    def at_rest(self, logits: Tensor) -> Tensor:
        """The gates of an evaluation: no noise, temperature 1."""
        return self._clipped(torch.sigmoid(logits))

    def open_probability(self, logits: Tensor, temperature: float) -> Tensor:
        """How likely each gate is not 0; the sum is the expected number of them."""
        if self.gamma == 0:
            return torch.ones_like(logits)
        return torch.sigmoid(logits - temperature * math.log(-self.gamma / self.zeta))

    def _clipped(self, s: Tensor) -> Tensor:
        return (s * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)
