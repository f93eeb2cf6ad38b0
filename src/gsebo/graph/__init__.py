"""Graphs as arrays, in memory or mapped from disk, and parts of them."""

from gsebo.graph.arrays import CanonicalGraph as CanonicalGraph
from gsebo.graph.arrays import canonicalise as canonicalise
from gsebo.graph.features import normalise_rows as normalise_rows
from gsebo.graph.topology import Propagation as Propagation
from gsebo.graph.topology import Topology as Topology
