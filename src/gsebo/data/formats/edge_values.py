"""Weights and attributes of edges, as files hold them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.features import require_numbers
from gsebo.graph.graph import Graph

EDGE_VALUES = ("edge_weight", "edge_attr")
"""Their names, in graphs and in files."""


def real_numbers_of(data: Graph, keys: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Those of these tensors of real numbers that a graph has, as arrays."""
    found: dict[str, NDArray[Any]] = {}
    for key in keys:
        if key not in data:
            continue
        value = data[key]
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            raise InvalidInput(f"expected {key} as a dense tensor, to save it.")
        require_numbers(value, key)
        held = value.detach().cpu()
        # numpy does not know all of torch's short types.
        short = held.is_floating_point() and held.dtype != torch.float64
        found[key] = (held.float() if short else held).numpy()
    return found


def checked_edge_values(
    arrays: Mapping[str, NDArray[Any]], num_edges: int, where: str
) -> dict[str, NDArray[Any]]:
    """Those among the arrays of a file, in single or double precision.

    Raises:
        InvalidInput: They are not finite numbers for so many edges, or a weight is
            negative.
    """
    found: dict[str, NDArray[Any]] = {}
    for key in EDGE_VALUES:
        if key not in arrays:
            continue
        array, sides = arrays[key], (1, 2) if key == "edge_attr" else (1,)
        if array.dtype.kind not in "fiu":
            raise InvalidInput(
                f"{key} of {where}: expected real numbers, got {array.dtype}."
            )
        if array.ndim not in sides or len(array) != num_edges:
            wide = f" or [{num_edges}, columns]" * (len(sides) > 1)
            raise InvalidInput(
                f"{key} of {where}: expected shape [{num_edges}]{wide}, got "
                f"{list(array.shape)}."
            )
        kind = np.float64 if array.dtype == np.float64 else np.float32
        with np.errstate(over="ignore"):
            values: NDArray[np.floating[Any]] = array.astype(kind, order="C")
        if not np.isfinite(values).all():
            raise InvalidInput(
                f"{key} of {where} holds numbers that are not finite: expected others."
            )
        if key == "edge_weight" and (values < 0).any():
            raise InvalidInput(
                f"{key} of {where} holds {values.min()}: expected 0 or more."
            )
        found[key] = values
    return found
