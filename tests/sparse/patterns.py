"""Random patterns together with the positions they were made from."""

from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from gsebo.sparse import Pattern
from gsebo.tape.backend import FeatureStep, TapeKernels

# The first example of a test may compile a kernel.
examples = settings(deadline=None, max_examples=40)

# Leading axes of two operands, as torch.matmul broadcasts them.
BATCHES = [
    ((), ()),
    ((3,), ()),
    ((), (3,)),
    ((3,), (3,)),
    ((1,), (3,)),
    ((3,), (1,)),
    ((1,), ()),
    ((2, 3), (2, 3)),
    ((2, 1), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((0,), ()),
    ((), (0,)),
]


@dataclass(frozen=True)
class Positions:
    """Where entries were put; the truth that a ``Pattern`` is compared with."""

    rows: Tensor
    columns: Tensor
    num_rows: int
    num_columns: int

    @property
    def pattern(self) -> Pattern:
        return Pattern.from_positions(
            self.rows, self.columns, self.num_rows, self.num_columns
        )

    def dense(self, values: Tensor) -> Tensor:
        """``[..., entries]`` as ordinary matrices ``[..., rows, columns]``."""
        shape = (*values.shape[:-1], self.num_rows * self.num_columns)
        index = (self.rows * self.num_columns + self.columns).expand(values.shape)
        flat = torch.zeros(shape, dtype=values.dtype).scatter_add(-1, index, values)
        return flat.view(*values.shape[:-1], self.num_rows, self.num_columns)

    def softmax(self, scores: Tensor) -> Tensor:
        """Softmax of each row by itself."""
        out = torch.full_like(scores, torch.nan)
        for row in range(self.num_rows):
            here = (self.rows == row).nonzero().squeeze(-1)
            out[..., here] = scores[..., here].softmax(-1)
        return out


@st.composite
def positions(draw: st.DrawFn, max_size: int = 8, max_entries: int = 25) -> Positions:
    """Any rectangular pattern: empty rows and columns, no entries, duplicates."""
    num_rows = draw(st.integers(1, max_size))
    num_columns = draw(st.integers(1, max_size))
    place = st.tuples(st.integers(0, num_rows - 1), st.integers(0, num_columns - 1))
    places = draw(st.lists(place, max_size=max_entries))
    rows, columns = torch.tensor(places, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Positions(rows, columns, num_rows, num_columns)


def awkward() -> Positions:
    """4 x 5 in no order, with an empty row, an empty column and a duplicate."""
    rows = torch.tensor([3, 0, 1, 0, 3, 3, 1])
    columns = torch.tensor([4, 1, 0, 3, 4, 0, 1])
    return Positions(rows, columns, 4, 5)


def large(num_nodes: int = 150, num_entries: int = 2000) -> Positions:
    """Enough rows of unequal length for several threads."""
    generator = torch.Generator().manual_seed(5)
    place = torch.rand(2, num_entries, generator=generator) ** 2 * num_nodes
    rows, columns = place.long()
    return Positions(rows, columns, num_nodes, num_nodes)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers that depend on ``seed`` only."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def empty(rows: int, columns: int) -> Positions:
    """A pattern without any entry."""
    nowhere = torch.empty(0, dtype=torch.int64)
    return Positions(nowhere, nowhere, rows, columns)


def dropped_features(kernels: TapeKernels, step: FeatureStep) -> torch.Tensor:
    """What is left of features with one column, ``[replicas, rows]``."""
    features, like = kernels.features(step), step.values
    one = like.new_ones(step.replicas, 1, 1)
    out = like.new_empty(step.replicas, step.pattern.num_rows, 1, 1)
    for call in (*features.draw(), *features.times((one, one), out)):
        call()
    return out[:, :, 0, 0]
