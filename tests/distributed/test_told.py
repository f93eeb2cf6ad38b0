import pytest
import torch

from distributed.thread_group import together
from gsebo import InvalidInput
from gsebo.distributed import Alone, Group
from gsebo.distributed.group import Content, broadcast_content, decided_by_first

CONTENT: Content = (
    {
        "weights": torch.arange(6.0).view(2, 3),
        "count": torch.tensor(7),
        "nothing": torch.empty(0, 4, dtype=torch.float64),
    },
    {"step": 3, "words": ["ä", None], "loss": float("inf")},
)


def only_first(group: Group) -> Content:
    # Nobody else is asked: the file may not be there.
    assert group.is_first
    return CONTENT


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_hear_what_the_first_has_found(size: int) -> None:
    for told in together(size, lambda g: broadcast_content(g, lambda: only_first(g))):
        assert told is not None
        tensors, facts = told
        assert facts == CONTENT[1]
        assert list(tensors) == list(CONTENT[0])
        for name, leaf in CONTENT[0].items():
            assert torch.equal(tensors[name], leaf)
            assert tensors[name].dtype == leaf.dtype


def test_there_may_be_nothing() -> None:
    assert together(3, lambda g: broadcast_content(g, lambda: None)) == [None] * 3


def test_what_the_first_refuses_is_refused_by_all() -> None:
    def refuse() -> Content:
        raise InvalidInput("a bad file")

    def hear(group: Group) -> str:
        with pytest.raises(InvalidInput) as caught:
            broadcast_content(group, refuse)
        return str(caught.value)

    assert together(3, hear) == ["a bad file"] * 3


def test_the_first_decides() -> None:
    assert together(3, lambda g: decided_by_first(g, g.rank == 0)) == [True] * 3
    assert together(3, lambda g: decided_by_first(g, g.rank != 0)) == [False] * 3
    assert decided_by_first(Alone(), True)
