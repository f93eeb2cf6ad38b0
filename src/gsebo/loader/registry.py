"""The samplers by name."""

from gsebo.errors import InvalidInput
from gsebo.loader.cluster import PartitionSampler
from gsebo.loader.neighbor import NeighbourSampler
from gsebo.loader.sampler import Sampler
from gsebo.lookup import lookup

SAMPLERS: dict[str, type[Sampler]] = {
    "neighbour": NeighbourSampler,
    "neighbor": NeighbourSampler,
    "partition": PartitionSampler,
}


def make_sampler(sampler: str | Sampler) -> Sampler:
    """Build a sampler by name; a sampler is returned as it is.

    >>> make_sampler("neighbour")
    NeighbourSampler(fanout=10)

    Args:
        sampler: A name of ``SAMPLERS``, or a sampler.
    """
    if isinstance(sampler, Sampler):
        return sampler
    if not isinstance(sampler, str):
        raise InvalidInput(f"sampler={sampler!r} given; expected a name or a Sampler.")
    return lookup("sampler", sampler, SAMPLERS)()
