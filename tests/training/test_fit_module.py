"""Plain descent."""

import pytest
import torch
from torch import Tensor

from gsebo import InvalidInput
from gsebo.bilevel import Tree, make_optimizer
from gsebo.methods.baselines.shared import minimise

START = {"x": torch.tensor([1.0, -2.0]), "unused": torch.tensor([5.0])}


def test_it_takes_the_steps_of_the_optimiser() -> None:
    told = []

    def loss(tree: Tree, step: int) -> Tensor:
        told.append(step)
        return tree["x"].square().sum() / 2

    found = minimise(loss, START, make_optimizer("sgd", 0.5), 3)
    assert told == [0, 1, 2]
    torch.testing.assert_close(found["x"], START["x"] / 8)
    assert torch.equal(found["unused"], START["unused"])
    assert START["x"].tolist() == [1, -2]
    assert not found["x"].requires_grad


def test_what_diverges_is_refused() -> None:
    def loss(tree: Tree, step: int) -> Tensor:
        return tree["x"].pow(4).sum()

    with pytest.raises(InvalidInput, match="after 9 steps"):
        minimise(loss, START, make_optimizer("sgd", 10.0), 9)
