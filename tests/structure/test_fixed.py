import torch
from hypothesis import given

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.structure import (
    STRUCTURES,
    AmortisedStrength,
    EdgeStrength,
    Fixed,
    Structure,
)

from .graphs import examples, graphs, ground


@examples
@given(graphs())
def test_fixed_is_the_start_and_has_nothing_to_learn(given: CanonicalGraph) -> None:
    where = Topology.of(given, self_loops=True, device="cpu")
    start = torch.rand(where.num_entries, generator=torch.Generator().manual_seed(0))
    structure = Fixed()
    structure.setup(ground(where, start, 2))
    assert list(structure.parameters()) == []
    assert torch.equal(structure(where), start)
    assert structure.project({}) == {}


def test_registry_names_the_structures() -> None:
    assert STRUCTURES["edge"] is EdgeStrength
    assert STRUCTURES["amortised"] is AmortisedStrength
    assert STRUCTURES["fixed"] is Fixed
    assert all(issubclass(each, Structure) for each in STRUCTURES.values())
