"""Graphs as arrays, in memory or mapped from disk, and parts of them."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.graph.features import normalise_rows as normalise_rows
    from gsebo.graph.graph import Graph as Graph
    from gsebo.graph.graph import as_graph as as_graph
    from gsebo.graph.topology import CanonicalGraph as CanonicalGraph
    from gsebo.graph.topology import Propagation as Propagation
    from gsebo.graph.topology import Topology as Topology
    from gsebo.graph.topology import canonicalise as canonicalise

make_lazy(__name__)
