import pytest

from gsebo.bilevel import (
    HYPERGRADIENTS,
    FirstOrder,
    Hypergradient,
    Implicit,
    Reverse,
    Unrolled,
    make_hypergradient,
)
from gsebo.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("reverse", Reverse(False, kept_graphs=None)),
        ("Truncated", Reverse(False, horizon=5, kept_graphs=None)),
        ("unrolled", Unrolled(False)),
        ("implicit", Implicit(False)),
        ("first-order", FirstOrder()),
    ],
)
def test_builds_by_name(name: str, engine: Hypergradient) -> None:
    assert make_hypergradient(name, direct_term=False) == engine


@pytest.mark.parametrize("name", HYPERGRADIENTS)
def test_every_engine_is_built_and_prints(name: str) -> None:
    engine = make_hypergradient(name, direct_term=True)
    assert engine.direct_term
    assert repr(engine).startswith(type(engine).__name__)


def test_an_engine_is_returned_as_it_is() -> None:
    engine = Reverse(True, horizon=2)
    assert make_hypergradient(engine, direct_term=False, horizon=9) is engine


@pytest.mark.parametrize("name", ["reverse", "truncated"])
def test_passes_the_horizon_on(name: str) -> None:
    engine = make_hypergradient(name, direct_term=False, horizon=2)
    assert engine == Reverse(False, horizon=2, kept_graphs=None)


def test_says_what_is_wrong() -> None:
    with pytest.raises(InvalidInput, match="unknown hypergradient 'revers', did you"):
        make_hypergradient("revers", direct_term=True)
    with pytest.raises(InvalidInput, match="'unrolled', which has none"):
        make_hypergradient("unrolled", direct_term=True, horizon=3)
    with pytest.raises(InvalidInput, match="horizon=0 given; expected at least 1"):
        make_hypergradient("truncated", direct_term=True, horizon=0)
    with pytest.raises(InvalidInput, match="kept_graphs=0 given; expected at least 1"):
        Reverse(kept_graphs=0)
