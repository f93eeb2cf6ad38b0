"""What the processes of test_processes.py do; each function runs in all of them."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import gsebo
from distributed.test_tables import COLUMNS, expected_sum, filled, some_entries
from gsebo.distributed import (
    Distributed,
    EntryTable,
    Group,
    current_group,
    load_table,
    save_table,
)

TOTAL = 97


def own_tensor(rank: int, length: int = 1001) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    # Far apart in size, so that the order of a sum shows.
    return torch.randn(length, generator=generator).mul(5).exp()


def use_everything(folder: str) -> None:
    group = current_group()
    assert isinstance(group, Distributed)
    assert current_group().rank == group.rank
    _sums(group)
    _gathers(group)
    _exchanges(group)
    _tables(group, sharded=False)
    _tables(group, sharded=True)
    _files(group, Path(folder))


def _sums(group: Group) -> None:
    own = own_tensor(group.rank)
    kept = own.clone()
    first = group.sum(own)
    assert torch.equal(own, kept)
    exact = torch.stack([own_tensor(rank) for rank in range(group.size)]).double()
    torch.testing.assert_close(first, exact.sum(0).float())
    for _ in range(10):
        # Whoever comes first, the bits are the same.
        time.sleep(random.random() / 200)
        assert torch.equal(group.sum(own), first)
    assert all(torch.equal(other, first) for other in group.gather(first))
    told = group.from_first(torch.tensor([group.rank + 5.0]))
    assert told.tolist() == [5.0]

    def tree(numbers: Tensor) -> dict[str, Tensor]:
        return {"a": numbers[:6].view(2, 3), "b": numbers[6], "c": numbers[7:]}

    total = own_tensor(0)
    for rank in range(1, group.size):
        total += own_tensor(rank)
    summed = group.sum_in_order([tree(own)], tree(own))
    assert list(summed) == ["a", "b", "c"]
    assert all(map(torch.equal, summed.values(), tree(total).values()))


def _gathers(group: Group) -> None:
    def of(rank: int) -> Tensor:
        return torch.arange(6 * rank).view(2 * rank, 3) + rank

    found = group.gather(of(group.rank))
    assert len(found) == group.size
    assert all(torch.equal(each, of(rank)) for rank, each in enumerate(found))
    # Of another layout, and nothing at all.
    strided = torch.arange(8.0).view(2, 4).T
    assert all(torch.equal(each, strided) for each in group.gather(strided))
    assert [each.shape for each in group.gather(torch.empty(0, 2))] == [
        (0, 2)
    ] * group.size


def _exchanges(group: Group) -> None:
    def of(sender: int, receiver: int) -> Tensor:
        return torch.full((sender * receiver % 3, 2), 10.0 * sender + receiver)

    ranks = range(group.size)
    found = group.exchange([of(group.rank, receiver) for receiver in ranks])
    expected = [of(sender, group.rank) for sender in ranks]
    assert all(map(torch.equal, found, expected))
    # Sent back, everybody has what was theirs.
    back = group.exchange(found)
    assert all(map(torch.equal, back, [of(group.rank, other) for other in ranks]))
    nothing = group.exchange([torch.empty(0, dtype=torch.int64)] * group.size)
    assert [each.numel() for each in nothing] == [0] * group.size


def _tables(group: Group, *, sharded: bool) -> None:
    table = filled(group, TOTAL, 3, sharded=sharded)
    plain = filled(group, TOTAL, 3, sharded=False)
    entries = [some_entries(TOTAL, rank) for rank in range(group.size)]
    own = entries[group.rank]
    found, expected = table.take(own.ids), plain.read(own.ids)
    assert all(torch.equal(found[name], expected[name]) for name in COLUMNS)
    ids, values = table.gathered([own], list(COLUMNS))
    whole = expected_sum(entries, TOTAL)
    assert all(torch.equal(values[n], whole[n][..., ids]) for n in COLUMNS)
    table.write(ids, values)
    every = torch.arange(TOTAL)
    after, start = table.take(every), plain.read(every)
    touched = torch.zeros(TOTAL, dtype=torch.bool)
    for part in entries:
        touched[part.ids] = True
    for name in COLUMNS:
        moved = torch.where(touched, whole[name], start[name])
        assert torch.equal(after[name], moved)


def _files(group: Group, folder: Path) -> None:
    """Each number of processes loads what the one before it has saved."""
    for path in sorted(folder.glob("table-*")):
        table = EntryTable(COLUMNS, TOTAL, group, sharded=True)
        load_table(table, path)
        every = torch.arange(TOTAL)
        expected = filled(group, TOTAL, 8, sharded=False).read(every)
        found = table.take(every)
        assert all(torch.equal(found[name], expected[name]) for name in COLUMNS)
    group.sum(torch.zeros(1))  # Everybody is here.
    save_table(filled(group, TOTAL, 8, sharded=True), folder / f"table-{group.size}")


def die_or_notice(_: str) -> None:
    group = current_group()
    assert group.sum(torch.ones(1)).item() == group.size
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"reset|closed|Broken pipe"):
        for _step in range(3):
            group.sum(torch.ones(1))
    assert time.monotonic() - begun < 10


def come_back(_: str) -> None:
    group = current_group()
    assert group.sum(torch.ones(1)).item() == group.size


def stop_together(_: str) -> None:
    """The watcher of the first process decides; the other would stop earlier."""
    step = 2 if os.environ["RANK"] == "0" else 1
    model = gsebo.GSEBO(batch_size=16, max_outer_steps=4, random_state=0, device="cpu")
    graph = gsebo.generate_graph(60, num_features=4, split="random:20/30/50")
    model.fit(graph, watcher=lambda record, logits: record.step >= step)
    assert len(model.history_) == 2


def one_is_missing(_: str) -> None:
    if os.environ["RANK"] == "1":
        return
    with pytest.raises(TimeoutError, match="in vain for the processes with rank 1"):
        current_group(timeout_seconds=0.2)
