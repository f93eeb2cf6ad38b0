"""A function of the features of each node, on all nodes of a graph in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.backbone.base import Features
from gsebo.data.arrays import GraphArrays
from gsebo.data.mapped import release
from gsebo.errors import InvalidInput
from gsebo.structure.some_nodes import feature_bytes, features_of

Array = NDArray[Any]


@torch.no_grad()
def node_map(
    arrays: GraphArrays,
    function: Callable[[Features], Tensor],
    width: int,
    *,
    memory: int,
    widest: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    out: Array | None = None,
) -> Array:
    """Apply a function to all nodes, ``[nodes, width]``.

    Args:
        arrays: The graph.
        function: From features of some nodes to ``[those nodes, width]``.
        width: Columns of the result.
        memory: Bytes to stay within, beside the result.
        widest: Columns of the widest that the function makes on its way.
        dtype: Type of the features that the function gets; by default their own.
        device: Where the function runs.
        out: Where the result is written; by default a new array.
    """
    dtype = arrays.dtype if dtype is None else dtype
    out = result_array(out, arrays.num_nodes, width, dtype)
    columns = feature_bytes(arrays, dtype) + 4 * max(width, widest) * dtype.itemsize
    step = max(positive(memory) // columns, 1)
    for begin in range(0, arrays.num_nodes, step):
        end = min(begin + step, arrays.num_nodes)
        nodes = torch.arange(begin, end)
        found = function(features_of(arrays, nodes, dtype, device))
        out[begin:end] = found.numpy(force=True)
        arrays.release()
        release(out)
    return out


def result_array(
    out: Array | None, num_nodes: int, width: int, dtype: torch.dtype
) -> Array:
    """The array that a result is to be written to.

    Raises:
        InvalidInput: That which was given has another shape.
    """
    if out is None:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        return np.empty((num_nodes, width), kind)
    if out.shape != (num_nodes, width):
        raise InvalidInput(
            f"out has shape {out.shape}, expected {(num_nodes, width)}, one row for "
            "each node."
        )
    return out


def positive(memory: int) -> int:
    """Return the bytes to stay within.

    Raises:
        InvalidInput: There are none.
    """
    if memory < 1:
        raise InvalidInput(f"memory={memory} given; expected a number of bytes >= 1.")
    return memory
