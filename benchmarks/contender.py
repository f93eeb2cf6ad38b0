"""What a contender can be asked for."""

from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor


class Contender(Protocol):
    """Somebody who learns strengths, one outer step at a time."""

    def hypergradient(self) -> Tensor:
        """Take the inner steps; return the derivative by each entry's strength."""

    def outer_step(self) -> None:
        """Take the inner steps and then one step of the strengths."""

    def threads(self) -> AbstractContextManager[None]:
        """Work on as many threads as this contender does best with."""
