"""The samplers by name."""

from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput
from gsebo.names import Registry, lookup

if TYPE_CHECKING:
    from gsebo.loader.sampler import Sampler

SAMPLERS: Registry[type["Sampler"]] = Registry(
    {
        "neighbour": "gsebo.loader.neighbor:NeighbourSampler",
        "neighbor": "gsebo.loader.neighbor:NeighbourSampler",
        "partition": "gsebo.loader.cluster:PartitionSampler",
    }
)


def make_sampler(sampler: "str | Sampler") -> "Sampler":
    """Build a sampler by name; a sampler is returned as it is.

    >>> make_sampler("neighbour")
    NeighbourSampler(fanout=10)
    """
    # Not at the top: the names are to be read without torch.
    from gsebo.loader.sampler import Sampler

    if isinstance(sampler, Sampler):
        return sampler
    if not isinstance(sampler, str):
        raise InvalidInput(f"sampler={sampler!r} given; expected a name or a Sampler.")
    return lookup("sampler", sampler, SAMPLERS)()
