"""Methods that weigh all n² pairs of nodes say so before they begin."""

import torch

from gsebo.errors import InvalidInput
from gsebo.memory import free_memory

_GIGABYTE = 1e9


def require_dense_memory(
    method: str,
    matrices: int,
    num_nodes: int,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Raise `InvalidInput` if so many matrices of n² numbers do not fit.

    Args:
        method: Name of the method, for the message.
        matrices: How many matrices there are at the same time, at most.
        num_nodes: n.
        dtype: Of their numbers.
        device: Where they would be.
    """
    needed = matrices * num_nodes**2 * dtype.itemsize
    free = free_memory(device)
    if free is not None and needed > free:
        raise InvalidInput(
            f"{method} weighs all pairs of {num_nodes} nodes given and needs about "
            f"{needed / _GIGABYTE:.1f} GB; expected a graph that fits into the "
            f"{free / _GIGABYTE:.1f} GB that are free."
        )
