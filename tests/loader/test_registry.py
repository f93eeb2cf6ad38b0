"""Samplers by name."""

import pytest

from gsebo.errors import InvalidInput
from gsebo.loader import ClusterSampler, NeighborSampler, make_sampler


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("neighbor", NeighborSampler),
        ("neighbor", NeighborSampler),
        ("Neighbor", NeighborSampler),
        ("cluster", ClusterSampler),
    ],
)
def test_a_name_gives_its_sampler_with_defaults(name: str, kind: type) -> None:
    assert make_sampler(name) == kind()


def test_a_sampler_is_returned_as_it_is() -> None:
    sampler = NeighborSampler((5, 3))
    assert make_sampler(sampler) is sampler


def test_other_names_and_things_are_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'cluster'"):
        make_sampler("clusters")
    with pytest.raises(InvalidInput, match="expected a name or a Sampler"):
        make_sampler(3)
