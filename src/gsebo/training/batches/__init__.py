"""Batches that know which nodes and edges of the whole graph they hold."""

from gsebo.training.batches.batch import Batch as Batch
from gsebo.training.batches.neighbour import NeighbourSampler as NeighbourSampler
from gsebo.training.batches.partition import PartitionSampler as PartitionSampler
from gsebo.training.batches.registry import SAMPLERS as SAMPLERS
from gsebo.training.batches.registry import make_sampler as make_sampler
from gsebo.training.batches.sampler import BoundSampler as BoundSampler
from gsebo.training.batches.sampler import Sampler as Sampler
