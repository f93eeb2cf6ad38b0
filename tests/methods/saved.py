"""What is asked of a saved model, whole or damaged."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import InvalidInput, load_model
from gsebo.methods import GraphClassifier


def assert_refused(folder: Path, **arguments: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_model(folder, **arguments)
    message = str(caught.value)
    assert "\n" not in message.replace(str(folder), "")
    return message


def assert_same_model(left: GraphClassifier, right: GraphClassifier, data: Data):
    assert type(left) is type(right)
    for key in ("probability_", "transduction_", "strength_", "initial_strength_"):
        assert torch.equal(getattr(left, key), getattr(right, key))
        assert getattr(left, key).dtype == getattr(right, key).dtype
    assert left.history_ == right.history_
    assert (left.best_step_, left.seed_) == (right.best_step_, right.seed_)
    assert torch.equal(left.predict_proba(data), right.predict_proba(data))
    loops = left.loop_strength_, right.loop_strength_
    assert loops == (None, None) or torch.equal(*loops)
