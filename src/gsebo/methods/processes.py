"""Fits in several processes: which can be shared, and how they are joined."""

import torch

from gsebo.bilevel import make_hypergradient
from gsebo.distributed.group import current_group
from gsebo.distributed.launch import launched
from gsebo.errors import InvalidInput
from gsebo.methods.parameters import SklearnEstimator


def require_shareable(estimator: SklearnEstimator) -> None:
    """Raise if several processes were started and cannot share the fit."""
    place = launched()
    if place is None or place.size == 1:
        return
    name, parameters = type(estimator).__name__, estimator.get_params(deep=False)
    started = f"{place.size} processes started"
    if "batch_size" not in parameters:
        raise InvalidInput(
            f"{started} for {name}, which they cannot share; expected one process, "
            "or a method with batch_size."
        )
    if parameters["batch_size"] is None:
        raise InvalidInput(
            f"{started} for {name} without batch_size; expected a batch_size, because "
            "batches are what they share."
        )
    engine = parameters["hypergradient"]
    if not make_hypergradient(engine, direct_term=True).by_derivatives:
        raise InvalidInput(
            f"{started} with hypergradient={engine!r}; expected 'reverse', 'truncated' "
            "or 'first_order', whose derivatives they can add up."
        )
    if parameters["random_state"] is None:
        raise InvalidInput(
            f"{started} with random_state=None; expected a seed, the same in all."
        )


def join_others(device: torch.device) -> None:
    """Join the processes that were started with this one, if there are any.

    Before anything is put on a GPU: each process takes one of its own.
    """
    current_group(device.type)
