"""The preparations of features by name."""

from torch_geometric.data import Data

from gsebo.data.preparation import Given, Preparation, Rows, Standard
from gsebo.data.preparation_graph import Degree, DegreeAndIdentity, Identity
from gsebo.lookup import lookup

PREPARATIONS: dict[str, type[Preparation]] = {
    kind.name: kind
    for kind in (Given, Rows, Standard, Degree, Identity, DegreeAndIdentity)
}


def suitable_preparations(data: Data) -> list[str]:
    """Names of those that make sense for a graph; the first is the simplest."""
    return [name for name, kind in PREPARATIONS.items() if kind.suits(data)]


def fit_preparation(name: str, data: Data) -> Preparation:
    """Fit the preparation called ``name`` to a graph."""
    return preparation_called(name).fit(data)


def preparation_called(name: str) -> type[Preparation]:
    """The kind of a stored preparation."""
    return lookup("preparation", name, PREPARATIONS)
