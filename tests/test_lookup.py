import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsebo import InvalidInput
from gsebo.names import lookup, normalise

CHOICES = {"sage-gcn": 1, "first_order": 2, "GATv2": 3}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sage-gcn", 1),
        ("SAGE_GCN", 1),
        (" sage gcn ", 1),
        ("first-order", 2),
        ("gatV2", 3),
    ],
)
def test_a_name_is_found_however_it_is_written(name: str, value: int) -> None:
    assert lookup("thing", name, CHOICES) == value


@given(st.text())
def test_normalising_twice_changes_nothing(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)


@given(st.text())
def test_any_text_is_found_or_refused(name: str) -> None:
    try:
        assert lookup("thing", name, CHOICES) in CHOICES.values()
    except InvalidInput as error:
        assert "unknown thing" in str(error)
        assert "sage-gcn, first_order, GATv2" in str(error)


def test_the_nearest_name_is_told_as_it_is_spelt() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'GATv2'"):
        lookup("thing", "gatv3", CHOICES)


def test_what_is_near_to_nothing_gets_no_hint() -> None:
    with pytest.raises(InvalidInput) as caught:
        lookup("thing", "zzzzzz", CHOICES)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, b"GATv2", ["GATv2"], object])
def test_a_name_is_text(name) -> None:
    with pytest.raises(InvalidInput, match="given as thing"):
        lookup("thing", name, CHOICES)
