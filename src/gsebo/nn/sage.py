"""GraphSAGE (Hamilton et al., NeurIPS 2017) with edge strengths, two aggregators."""

from dataclasses import dataclass
from typing import Literal, final

from gsebo.nn.base import BY_ROW, LayeredBackbone
from gsebo.nn.gcn import GCNLayer


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SAGE(LayeredBackbone):
    """GraphSAGE: its vanilla strengths are 1 / d_i.

    Args:
        aggregator: ``"mean"``: mean of the neighbors, with a weight matrix of its own
            for the node; ``"gcn"``: mean of the neighbors and the node.
    """

    traceable = True
    normalisation = BY_ROW
    aggregator: Literal["mean", "gcn"] = "mean"

    def __post_init__(self) -> None:
        self.self_loops = self.aggregator == "gcn"
        super().__post_init__()

    def layer(self, number: int, in_channels: int, out_channels: int) -> GCNLayer:
        return GCNLayer(in_channels, out_channels, self_weight=not self.self_loops)
