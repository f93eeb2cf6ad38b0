"""Which edges of a graph are wrong, and which are missing."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.suspects.detector import SuspiciousEdges as SuspiciousEdges
    from gsebo.suspects.detector import suspicious_edges as suspicious_edges
    from gsebo.suspects.missing import missing_edges as missing_edges

make_lazy(__name__)
