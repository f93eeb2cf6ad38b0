"""However a table is shared out, it is one plain array to its readers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from distributed.thread_group import together
from gsebo.distributed import (
    Entries,
    EntryTable,
    Group,
    add_up,
    share,
)

COLUMNS = {"change": (2,), "mean/change": (2,), "bias": ()}

sizes = st.integers(1, 4)
seeds = st.integers(0, 2**31)
either = pytest.mark.parametrize("sharded", [False, True])


def some_ids(total: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(total, generator=generator) < torch.rand(1, generator=generator)
    return chosen.nonzero()[:, 0]


def some_entries(total: int, seed: int) -> Entries:
    ids = some_ids(total, seed)
    generator = torch.Generator().manual_seed(seed)
    # Far apart in size, so that the order of a sum shows.
    values = {
        name: torch.randn(*axes, len(ids), generator=generator).mul(4).exp()
        for name, axes in COLUMNS.items()
    }
    return Entries(ids, values)


def expected_sum(parts: list[Entries], total: int) -> dict[str, Tensor]:
    whole = {name: torch.zeros(*axes, total) for name, axes in COLUMNS.items()}
    for part in parts:
        for name, leaf in part.values.items():
            whole[name][..., part.ids] += leaf
    return whole


def filled(group: Group, total: int, seed: int, *, sharded: bool) -> EntryTable:
    table = EntryTable(COLUMNS, total, group, sharded=sharded)
    generator = torch.Generator().manual_seed(seed)
    held = torch.arange(table.held.start, table.held.stop)
    for name, axes in COLUMNS.items():
        whole = torch.randn(*axes, total, generator=generator)
        table.write(held, {name: whole[..., held]})
    return table


@either
@settings(max_examples=30)
@given(size=sizes, total=st.integers(1, 40), seed=seeds)
def test_every_member_takes_its_own_entries(
    sharded: bool, size: int, total: int, seed: int
) -> None:
    (whole,) = together(
        1,
        lambda group: filled(group, total, seed, sharded=False).take(
            torch.arange(total)
        ),
    )

    def work(group: Group) -> None:
        table = filled(group, total, seed, sharded=sharded)
        ids = some_ids(total, seed + group.rank)
        found = table.take(ids, ["bias", "change"])
        assert list(found) == ["bias", "change"]
        for name, leaf in found.items():
            assert torch.equal(leaf, whole[name][..., ids])

    together(size, work)


@either
@settings(max_examples=30)
@given(size=sizes, counts=st.lists(st.integers(0, 3), min_size=4), seed=seeds)
def test_gathered_is_the_sum_in_order(
    sharded: bool, size: int, counts: list[int], seed: int
) -> None:
    total = 17
    dealt = [
        [some_entries(total, seed + 10 * rank + place) for place in range(counts[rank])]
        for rank in range(size)
    ]
    parts = [part for own in dealt for part in own]
    whole = expected_sum(parts, total)
    touched = {int(entry) for part in parts for entry in part.ids}

    def work(group: Group) -> list[int]:
        table = EntryTable(COLUMNS, total, group, sharded=sharded)
        ids, values = table.gathered(dealt[group.rank], list(COLUMNS))
        assert list(values) == list(COLUMNS)
        for name, leaf in values.items():
            assert torch.equal(leaf, whole[name][..., ids])
        found: list[int] = ids.tolist()
        assert found == sorted(touched & set(table.held))
        return found

    found = together(size, work)
    assert set().union(*found) == touched


@either
def test_names_may_come_in_another_order(sharded: bool) -> None:
    part = some_entries(9, 3)
    turned = Entries(part.ids, dict(reversed(part.values.items())))

    def work(group: Group) -> None:
        table = EntryTable(COLUMNS, 9, group, sharded=sharded)
        own = [part if group.is_first else turned]
        ids, values = table.gathered(own, list(COLUMNS))
        whole = expected_sum([part, part], 9)
        for name in COLUMNS:
            assert torch.equal(values[name], whole[name][..., ids])

    together(2, work)


@either
def test_updates_are_the_same_however_the_table_is_shared_out(sharded: bool) -> None:
    total, rounds = 23, 4

    def train(group: Group) -> dict[str, Tensor]:
        table = filled(group, total, 5, sharded=sharded)
        for step in range(rounds):
            all_parts = [some_entries(total, 7 * step + place) for place in range(4)]
            own = [all_parts[place] for place in share(4, group)]
            ids, gradient = table.gathered(own, ["change"])
            now = table.read(ids, ["change", "mean/change"])
            mean = now["mean/change"].lerp(gradient["change"], 0.1)
            table.write(ids, {"change": now["change"] - mean, "mean/change": mean})
        return table.take(torch.arange(total))

    (alone,) = together(1, train)
    for size in (2, 3, 4):
        for found in together(size, train):
            assert all(torch.equal(found[name], alone[name]) for name in COLUMNS)


@either
def test_a_copy_stays_and_can_be_taken_back(sharded: bool) -> None:
    def work(group: Group) -> None:
        table = filled(group, 11, 0, sharded=sharded)
        every = torch.arange(11)
        before = table.take(every)
        kept = table.copy(["change"])
        held = torch.arange(table.held.start, table.held.stop)
        zero = {name: torch.zeros(*axes, len(held)) for name, axes in COLUMNS.items()}
        table.write(held, zero)
        assert list(kept.columns) == ["change"]
        assert torch.equal(kept.take(every)["change"], before["change"])
        assert not table.take(every)["change"].any()
        table.assign(kept)
        after = table.take(every)
        assert torch.equal(after["change"], before["change"])
        assert not after["bias"].any()

    together(3, work)


@pytest.mark.parametrize("ids", [[3, 2], [1, 1], [-1, 2], [2, 9]])
def test_ids_that_would_be_lost_are_refused(ids: list[int]) -> None:
    def work(group: Group) -> None:
        table = EntryTable(COLUMNS, 9, group, sharded=True)
        table.take(torch.tensor(ids))

    with pytest.raises(ValueError, match="expected ascending ones from 0 to 8"):
        together(1, work)


def test_tables_shared_out_differently_are_not_mixed() -> None:
    def work(group: Group) -> None:
        whole = EntryTable(COLUMNS, 9, group)
        dealt = EntryTable(COLUMNS, 9, group, sharded=True)
        for one, other in ((whole, dealt), (dealt, whole)):
            with pytest.raises(ValueError, match="the same way"):
                one.assign(other)

    together(2, work)


def test_one_part_is_its_own_sum() -> None:
    part = some_entries(9, 4)
    assert add_up([part]) is part
    table = EntryTable(COLUMNS, 9)
    ids, values = table.gathered([part], list(COLUMNS))
    assert torch.equal(ids, part.ids)
    assert all(torch.equal(values[name], part.values[name]) for name in COLUMNS)
