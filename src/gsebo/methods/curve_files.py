"""What was seen of held-out nodes, kept beside a checkpoint: nothing is tried twice."""

from typing import final

import torch

from gsebo.files import Form, check_tensors
from gsebo.methods.base import Run
from gsebo.methods.standing import Curve
from gsebo.schema import Count, NotNegative
from gsebo.training.checkpoint import FORMAT, CheckpointFacts

_OWNER = "search"


class _CurveFacts(CheckpointFacts, frozen=True, kw_only=True):
    """What a file says of its curve.

    Attributes:
        num_looks: How often held-out nodes were looked at.
        seconds: How long the training took.
    """

    num_looks: Count
    seconds: NotNegative


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
            if owner.read(self._fingerprint, CheckpointFacts) is None:
                # What an earlier fit left would otherwise be found later.
                self._checkpoint.remove()
                facts = CheckpointFacts(format=FORMAT, fingerprint=self._fingerprint)
                owner.write({}, facts)

    def save(self, name: str, curve: Curve) -> None:
        """Write a curve, if there is a place for it."""
        if self._checkpoint is None:
            return
        facts = _CurveFacts(
            format=FORMAT,
            fingerprint=self._fingerprint,
            num_looks=len(curve.right),
            seconds=curve.seconds,
        )
        tensors = {"right": curve.right, "loss": curve.loss}
        self._checkpoint.stage(name).write(tensors, facts)

    def load(self, name: str, num_nodes: int) -> Curve | None:
        """Read a curve, if the run is resumed and came so far.

        Args:
            name: Of the curve.
            num_nodes: Number of held-out nodes.
        """
        if self._checkpoint is None:
            return None
        place = self._checkpoint.stage(name)
        found = place.read(self._fingerprint, _CurveFacts)
        if found is None:
            return None
        tensors, facts = found
        shape = facts.num_looks, num_nodes
        forms = {"right": Form(torch.bool, shape), "loss": Form(torch.float32, shape)}
        check_tensors(tensors, forms, f"{place.path}")
        return Curve(tensors["right"], tensors["loss"], facts.seconds)
