"""Batches of a graph, drawn by neighbors or by clusters."""

from typing import TYPE_CHECKING

from gsebo.names import make_lazy

if TYPE_CHECKING:
    from gsebo.loader.batch import Batch as Batch
    from gsebo.loader.cluster import ClusterSampler as ClusterSampler
    from gsebo.loader.neighbor import NeighborSampler as NeighborSampler
    from gsebo.loader.registry import SAMPLERS as SAMPLERS
    from gsebo.loader.registry import make_sampler as make_sampler
    from gsebo.loader.sampler import BoundSampler as BoundSampler
    from gsebo.loader.sampler import Sampler as Sampler

make_lazy(__name__)
