"""Which fits several processes can share; none of these begins to train."""

from typing import Any

import pytest

from gsebo import GSEBO, Amortised, InvalidInput, Vanilla
from gsebo.methods import GraphClassifier

SHARED = {"batch_size": 8, "random_state": 0}


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun would have started this process with another."""
    values = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("of_two")
@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Vanilla(), "2 processes started for Vanilla, which they cannot share"),
        (GSEBO(random_state=0), "for GSEBO without batch_size; expected a batch_size"),
        (Amortised(random_state=0), "for Amortised without batch_size"),
        (GSEBO(**SHARED, hypergradient="unrolled"), "with hypergradient='unrolled'"),
        (GSEBO(**SHARED, hypergradient="implicit"), "with hypergradient='implicit'"),
        (GSEBO(batch_size=8), "random_state=None; expected a seed"),
    ],
    ids=str,
)
def test_refused_in_one_sentence(model: GraphClassifier, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        model.check_parameters()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("of_two")
@pytest.mark.parametrize("method", [GSEBO, Amortised])
@pytest.mark.parametrize("engine", ["reverse", "truncated", "first_order"])
def test_can_be_shared(method: Any, engine: str) -> None:
    method(**SHARED, hypergradient=engine).check_parameters()
    method(**SHARED, shard_strengths=True).check_parameters()


def test_alone_everything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    Vanilla().check_parameters()
    monkeypatch.setenv("WORLD_SIZE", "1")
    GSEBO(hypergradient="unrolled").check_parameters()
