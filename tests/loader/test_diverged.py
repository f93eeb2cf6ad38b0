"""What is left of a fit on batches that breaks down after some good steps."""

import pytest
import torch

from gsebo.training.outer_update import Moved, OuterUpdate
from methods.batch_examples import amortised_on_batches
from methods.examples import small_graph


def test_strengths_that_are_not_finite_are_never_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, calls = OuterUpdate.run, []

    def run(self: OuterUpdate, *args, **kwargs) -> Moved:
        moved = usual(self, *args, **kwargs)
        calls.append(moved)
        if len(calls) <= 2:
            return moved
        broken = {name: leaf * torch.nan for name, leaf in moved.shared.items()}
        own = {name: leaf * torch.nan for name, leaf in moved.changed.values.items()}
        changed = moved.changed._replace(values=own)
        return moved._replace(shared=broken, changed=changed)

    monkeypatch.setattr(OuterUpdate, "run", run)
    with pytest.warns(RuntimeWarning, match="diverged at step 2"):
        model = amortised_on_batches().fit(small_graph(60))
    assert len(model.history_) == 1
    assert model.strength_.isfinite().all()
    assert model.probability_.isfinite().all()
