"""Features of other nodes and labels of other classes."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data import load
from gsebo.data.noise.kinds import replace_labels, share_of, shuffle_features
from gsebo.errors import InvalidInput
from gsebo.graph import normalise_rows
from gsebo.graph.features import csr_tensor

seeds = st.integers(0, 9)
percents = st.integers(0, 100)


@st.composite
def features(draw: st.DrawFn) -> Tensor:
    """Words that are there or not, or numbers of which most are not zero."""
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 5)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    if draw(st.booleans()):
        return (torch.rand(shape, generator=generator) < 0.3).float()
    return torch.randn(shape, generator=generator, dtype=torch.float64) + 3


def sparse(x: Tensor) -> Tensor:
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (x != 0).sum(1).cumsum(0)])
    shape = (x.shape[0], x.shape[1])
    return csr_tensor(starts, x.nonzero()[:, 1], x[x != 0], shape)


@given(features(), percents, seeds)
@settings(max_examples=40)
def test_columns_keep_their_values(x: Tensor, percent: int, seed: int) -> None:
    # One word for each node is what normalising gives, too.
    assume(bool((x.abs().sum(dim=1) > 1).any()))
    data, before = Data(x=x, num_nodes=len(x)), x.clone()
    noisy = shuffle_features(data, percent, seed).x
    assert noisy.dtype == x.dtype and torch.equal(x, before)
    assert torch.equal(noisy.sort(dim=0).values, x.sort(dim=0).values)
    assert int((noisy != x).sum(dim=0).max()) <= share_of(percent, len(x))
    thin = shuffle_features(Data(x=sparse(x)), percent, seed).x
    assert thin.layout == torch.sparse_csr
    assert torch.equal(thin.to_dense(), noisy)


@given(features(), percents, seeds)
@settings(max_examples=40)
def test_normalised_words_are_swapped_as_words(
    x: Tensor, percent: int, seed: int
) -> None:
    words = (x > 0).float()
    swapped = shuffle_features(Data(x=words), percent, seed).x
    normalised = normalise_rows(words)
    noisy = shuffle_features(Data(x=normalised), percent, seed).x
    assert torch.allclose(noisy, normalise_rows(swapped))
    thin = shuffle_features(Data(x=sparse(normalised)), percent, seed).x
    assert torch.allclose(thin.to_dense(), noisy)


def test_what_is_dealt_says_nothing_of_its_node() -> None:
    x = torch.arange(3000.0)[:, None] + 1
    noisy = shuffle_features(Data(x=x), 50).x
    moved = noisy != x
    assert 1480 <= int(moved.sum()) <= 1500
    pairs = torch.cat([x[moved][None], noisy[moved][None]])
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 0.1


def test_other_columns_move_other_nodes() -> None:
    x = torch.arange(200.0)[:, None].repeat(1, 2) + 1
    moved = (shuffle_features(Data(x=x), 50).x != x).T
    assert not torch.equal(*moved)


@given(
    st.lists(st.integers(0, 4), min_size=6, max_size=30),
    percents,
    seeds,
)
@settings(max_examples=60)
def test_so_many_labels_become_another_class(
    labels: list[int], percent: int, seed: int
) -> None:
    y = torch.tensor(labels)
    part = torch.randint(4, y.shape, generator=torch.Generator().manual_seed(seed))
    masks = {
        f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))
    }
    data, before = Data(y=y, **masks), y.clone()
    learned = masks["train_mask"] | masks["val_mask"]
    classes = set(y[learned].tolist())
    if len(classes) < 2:
        with pytest.raises(InvalidInput, match="at least two"):
            replace_labels(data, percent, seed)
        return
    noisy = replace_labels(data, percent, seed)
    assert torch.equal(y, before)
    assert torch.equal(noisy.y[~learned], y[~learned])
    assert set(noisy.y[learned].tolist()) <= classes
    for mask in (masks["train_mask"], masks["val_mask"]):
        wrong = int((noisy.y != y)[mask].sum())
        assert wrong == share_of(percent, int(mask.sum()))


def test_other_classes_are_as_likely() -> None:
    everything, nothing = torch.ones(3000, dtype=torch.bool), torch.zeros(3000).bool()
    y = torch.arange(3000) % 4 * 2
    noisy = replace_labels(Data(y=y, train_mask=everything, val_mask=nothing), 100).y
    for own in (0, 2, 4, 6):
        counts = torch.bincount(noisy[y == own], minlength=7)[::2]
        assert int(counts[own // 2]) == 0
        assert all(200 < int(n) < 300 for i, n in enumerate(counts) if 2 * i != own)


def test_test_labels_are_never_read() -> None:
    data = load("cora")
    other = data.clone()
    other.y[data.test_mask] = -1
    first, second = (replace_labels(one, 60, seed=2).y for one in (data, other))
    assert torch.equal(first[~data.test_mask], second[~data.test_mask])
    assert torch.equal(first[data.test_mask], data.y[data.test_mask])


def test_what_is_missing(graph: Data) -> None:
    with pytest.raises(InvalidInput, match="no x"):
        shuffle_features(Data(edge_index=graph.edge_index, num_nodes=6), 10)
    for key in ("y", "train_mask", "val_mask"):
        part = graph.clone()
        part[key] = None
        with pytest.raises(InvalidInput, match=f"no {key}"):
            replace_labels(part, 10)
    for change in (shuffle_features, replace_labels):
        with pytest.raises(InvalidInput, match="0 to 100"):
            change(graph, 101)
        with pytest.raises(InvalidInput, match="seed=-1"):
            change(graph, 50, -1)
