"""What was seen of held-out nodes, kept beside a checkpoint: nothing is tried twice."""

from typing import final

import torch

from gsebo.errors import InvalidInput
from gsebo.files import write_tensors
from gsebo.methods.base import Run
from gsebo.methods.standing import Curve

_OWNER = "search"


@final
class CurveFiles:
    """The curves of one run, where it has a checkpoint to keep them with.

    Args:
        run: The run. What belongs to another one is refused here, before any training.
    """

    def __init__(self, run: Run) -> None:
        self._checkpoint = run.checkpoint
        self._fingerprint = run.fingerprint()
        if self._checkpoint is not None:
            self._checkpoint.prepare()
            owner = self._checkpoint.stage(_OWNER)
            if owner.read(self._fingerprint) is None:
                # What an earlier fit left would otherwise be found later.
                self._checkpoint.remove()
                write_tensors(owner.path, {}, {"fingerprint": self._fingerprint})

    def save(self, name: str, curve: Curve) -> None:
        """Write a curve, if there is a place for it."""
        if self._checkpoint is None:
            return
        tensors = {"right": curve.right, "loss": curve.loss}
        facts = {"fingerprint": self._fingerprint, "seconds": curve.seconds}
        write_tensors(self._checkpoint.stage(name).path, tensors, facts)

    def load(self, name: str) -> Curve | None:
        """Read a curve, if the run is resumed and came so far."""
        if self._checkpoint is None:
            return None
        place = self._checkpoint.stage(name)
        found = place.read(self._fingerprint)
        if found is None:
            return None
        tensors, facts = found
        try:
            right, loss = tensors["right"].to(torch.bool), tensors["loss"]
            return Curve(right, loss, float(facts["seconds"]))
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"{place.path} is damaged ({error!r}); expected a whole checkpoint"
            ) from error
