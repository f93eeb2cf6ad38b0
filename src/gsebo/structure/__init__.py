"""What the strength of an edge is."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.structure.amortised import AmortisedStrength as AmortisedStrength
    from gsebo.structure.base import Fixed as Fixed
    from gsebo.structure.base import GraphContext as GraphContext
    from gsebo.structure.base import Predictions as Predictions
    from gsebo.structure.base import Structure as Structure
    from gsebo.structure.edge_strength import EdgeStrength as EdgeStrength
    from gsebo.structure.evidence import EVIDENCE as EVIDENCE
    from gsebo.structure.evidence import SeenEdges as SeenEdges
    from gsebo.structure.registry import STRUCTURES as STRUCTURES
    from gsebo.structure.registry import make_structure as make_structure

make_lazy(__name__)
