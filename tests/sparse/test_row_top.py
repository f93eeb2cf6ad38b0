"""The largest of each row, against one dense row at a time."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.methods.baselines.neuralsparse import row_top

from .patterns import Positions, examples, normal, positions


@examples
@given(positions(), st.integers(1, 6), st.integers(0, 1000))
def test_it_chooses_what_a_dense_row_would(
    where: Positions, count: int, seed: int
) -> None:
    values = normal(where.rows.numel(), seed=seed)
    chosen = row_top(where.pattern, values, count)
    for row in range(where.num_rows):
        here = (where.rows == row).nonzero().squeeze(-1)
        top = values[here].topk(min(count, here.numel())).indices
        assert set(here[chosen[here]].tolist()) == set(here[top].tolist())


@examples
@given(positions(), st.integers(1, 6))
def test_of_equal_values_the_first_are_chosen(where: Positions, count: int) -> None:
    chosen = row_top(where.pattern, torch.zeros(where.rows.numel()), count)
    for row in range(where.num_rows):
        here = (where.rows == row).nonzero().squeeze(-1)
        assert here[chosen[here]].tolist() == here[:count].tolist()
