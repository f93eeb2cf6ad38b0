"""The samplers by name."""

from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput
from gsebo.names import Registry, lookup

if TYPE_CHECKING:
    from gsebo.loader.sampler import Sampler

SAMPLERS: Registry[type["Sampler"]] = Registry(
    {
        "neighbor": "gsebo.loader.neighbor:NeighborSampler",
        "cluster": "gsebo.loader.cluster:ClusterSampler",
    }
)
"""What ``sampler`` may be, by name."""


def make_sampler(sampler: "str | Sampler") -> "Sampler":
    """Build a sampler by name; a sampler is returned as it is.

    Args:
        sampler: A name of ``SAMPLERS``, or a sampler.

    >>> make_sampler("neighbor")
    NeighborSampler(num_neighbors=10)
    """
    # Not at the top: the names are to be read without torch.
    from gsebo.loader.sampler import Sampler

    if isinstance(sampler, Sampler):
        return sampler
    if not isinstance(sampler, str):
        raise InvalidInput(f"sampler={sampler!r} given; expected a name or a Sampler.")
    return lookup("sampler", sampler, SAMPLERS)()
