"""Labels are held out fairly, whatever their number."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.methods.folds import Fold, stratified_folds


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    """Labels and masks alone: folds know nothing of edges."""
    labels = draw(st.lists(st.integers(0, 5), min_size=3, max_size=60))
    part = draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels)))
    part[:2] = [0, 1]
    mask = torch.tensor(part)
    return Data(
        y=torch.tensor(labels),
        train_mask=mask == 0,
        val_mask=mask == 1,
        num_nodes=len(labels),
    )


def labelled(data: Data) -> set[int]:
    return set((data.train_mask | data.val_mask).nonzero().flatten().tolist())


def sets(fold: Fold) -> list[set[int]]:
    return [set(part.tolist()) for part in (fold.held_out, fold.train, fold.val)]


@given(data=graphs(), num_folds=st.integers(2, 5), seed=st.integers(0, 99))
def test_every_fold_divides_all_labels(data: Data, num_folds: int, seed: int) -> None:
    for fold in stratified_folds(data, num_folds, seed):
        held_out, train, val = sets(fold)
        assert held_out and train
        assert held_out | train | val == labelled(data)
        assert len(held_out) + len(train) + len(val) == len(labelled(data))
        classes = set(data.y[list(labelled(data))].tolist())
        assert set(data.y[fold.train].tolist()) == classes


@given(data=graphs(), num_folds=st.integers(2, 5), seed=st.integers(0, 99))
def test_every_label_is_held_out_once(data: Data, num_folds: int, seed: int) -> None:
    held_out = [
        node
        for fold in stratified_folds(data, num_folds, seed)
        for node in sets(fold)[0]
    ]
    assert len(held_out) == len(set(held_out))
    nodes = sorted(labelled(data))
    counts = data.y[nodes].bincount()
    several = {node for node in nodes if counts[data.y[node]] > 1}
    assert set(held_out) == several
    sizes = [len(fold.held_out) for fold in stratified_folds(data, num_folds, seed)]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(data=graphs(), seed=st.integers(0, 99))
def test_what_is_held_out_is_hidden(data: Data, seed: int) -> None:
    for fold in stratified_folds(data, 3, seed):
        hidden = fold.for_method(data)
        assert bool((hidden.y[fold.held_out] == -1).all())
        assert sets(fold)[1:] == [
            set(hidden[mask].nonzero().flatten().tolist())
            for mask in ("train_mask", "val_mask")
        ]
        longer = fold.for_length(data)
        assert sets(fold)[1] | sets(fold)[2] == set(
            longer.train_mask.nonzero().flatten().tolist()
        )


def test_the_proportion_of_the_masks_is_kept() -> None:
    part = torch.arange(400) % 10
    y = torch.arange(400) // 10 % 4
    data = Data(y=y, train_mask=part < 2, val_mask=(part >= 2) & (part < 8))
    for fold in stratified_folds(data, 4, 0):
        assert len(fold.held_out) == 80
        assert abs(len(fold.train) / (len(fold.train) + len(fold.val)) - 0.25) < 0.02


def test_other_seeds_hold_out_others() -> None:
    data = Data(
        y=torch.zeros(40, dtype=torch.int64),
        train_mask=torch.arange(40) < 20,
        val_mask=torch.arange(40) >= 20,
    )
    first, same, other = (
        stratified_folds(data, 2, seed)[0].held_out for seed in (0, 0, 1)
    )
    assert torch.equal(first, same) and not torch.equal(first, other)
