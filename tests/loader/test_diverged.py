"""What is left of a fit on batches that breaks down after some good steps."""

import pytest
import torch

from gsebo.bilevel import State, Tree
from gsebo.training.outer_step import Found, OptimizerStep
from methods.batch_examples import amortised_on_batches
from methods.examples import small_graph


def test_strengths_that_are_not_finite_are_never_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, calls = OptimizerStep.update, []

    def update(self: OptimizerStep, found: Found, state: State, outer: Tree):
        moved, after = usual(self, found, state, outer)
        calls.append(moved)
        if len(calls) <= 2:
            return moved, after
        slots = {name: leaf * torch.nan for name, leaf in after.slots.items()}
        broken = {name: leaf * torch.nan for name, leaf in moved.items()}
        return broken, State(after.count, slots)

    monkeypatch.setattr(OptimizerStep, "update", update)
    with pytest.warns(RuntimeWarning, match="diverged at step 2"):
        model = amortised_on_batches().fit(small_graph(60))
    assert len(model.history_) == 1
    assert model.strength_.isfinite().all()
    assert model.probability_.isfinite().all()
