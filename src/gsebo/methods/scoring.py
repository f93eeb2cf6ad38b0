"""Which nodes an accuracy is taken over."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.errors import InvalidInput
from gsebo.methods.parameters import require_choice


def scored_nodes(data: Data, mask: str | Tensor) -> Tensor:
    """Return the mask called ``mask``, or itself, as bool ``[nodes]`` on the CPU.

    Raises:
        InvalidInput: It is no such mask, holds no node, or the graph has no labels.
    """
    chosen = _named_mask(data, mask) if isinstance(mask, str) else mask
    num_nodes = int(data.num_nodes)
    if not isinstance(chosen, Tensor) or chosen.dtype != torch.bool:
        raise InvalidInput(
            f"mask={mask!r} given; expected 'test', 'val', 'train' or a bool tensor."
        )
    for name, tensor in (("mask", chosen), ("y", data.y)):
        shape = None if tensor is None else list(tensor.shape)
        if shape != [num_nodes]:
            raise InvalidInput(
                f"{name} has shape {shape}; expected [{num_nodes}], one for each node."
            )
    if not bool(chosen.any()):
        raise InvalidInput("the mask holds no node; expected at least one to score.")
    return chosen.cpu()


def _named_mask(data: Data, name: str) -> Tensor:
    require_choice("mask", name, ("test", "val", "train"))
    key = f"{name}_mask"
    if key not in data or data[key] is None:
        raise InvalidInput(f"the graph has no {key}; expected one to score on.")
    mask: Tensor = data[key]
    return mask
