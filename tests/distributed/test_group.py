import torch
from hypothesis import given
from hypothesis import strategies as st

from distributed.thread_group import together
from gsebo.distributed import Alone, share, shares

sizes = st.integers(1, 4)


@given(st.integers(0, 1000), st.integers(1, 20))
def test_shares_are_even_and_in_order(count: int, size: int) -> None:
    dealt = shares(count, size)
    assert [thing for own in dealt for thing in own] == list(range(count))
    lengths = [len(own) for own in dealt]
    assert max(lengths) - min(lengths) <= 1
    assert all(
        thing * size // count == rank for rank, own in enumerate(dealt) for thing in own
    )


def test_each_member_has_its_share() -> None:
    dealt = together(3, lambda group: share(7, group))
    assert dealt == shares(7, 3)
    assert share(7, Alone()) == range(7)


def test_alone_everything_is_as_it_was() -> None:
    group, tensor = Alone(), torch.randn(3)
    assert group.is_first
    assert torch.equal(group.sum(tensor), tensor)
    assert group.sum(tensor) is not tensor
    assert group.gather(tensor)[0] is tensor
    assert group.exchange([tensor])[0] is tensor
    assert group.from_first(tensor) is tensor


def test_an_empty_tree_has_an_empty_sum() -> None:
    assert together(2, lambda group: group.sum_in_order([{}], {})) == [{}, {}]


@given(sizes, st.integers(0, 6), st.integers(0, 99))
def test_sums_in_order_have_the_same_bits_for_any_number(
    size: int, count: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(count, 7, generator=generator)
    parts = [{"a": row[:3].exp(), "b": row[3:].view(2, 2)} for row in draw]
    like = {"b": torch.zeros(2, 2), "a": torch.zeros(3)}

    def own(group):
        mine = [parts[place] for place in share(count, group)]
        return group.sum_in_order(mine, like)

    (expected,) = together(1, own)
    for found in together(size, own):
        assert list(found) == list(like)
        assert all(torch.equal(found[name], expected[name]) for name in like)
    direct = draw[:, 3:].sum(0).view(2, 2)
    torch.testing.assert_close(expected["b"], direct)
