"""Is this the same fit? One hash of parameters and graph, for checkpoints."""

import hashlib
import json
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gsebo.data.folder import GraphFolder

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PLAIN = (bool, int, float, str, tuple, list, type(None))


def fingerprint(
    method: str, parameters: dict[str, Any], data: Data | GraphFolder
) -> str:
    """Hash what a fit depends on; labels that it may not read are left out.

    Args:
        method: Name of the estimator.
        parameters: Its parameters, the seed that is used among them.
        data: A validated graph, or one on disk.
    """
    text = json.dumps([method, parameters], sort_keys=True, default=_describe)
    digest = hashlib.sha256(text.encode())
    if isinstance(data, GraphFolder):
        named = sorted(data.manifest.arrays.items())
        parts = (f"{name}:{entry.sha256}" for name, entry in named)
        digest.update("\n".join(parts).encode())
        return digest.hexdigest()
    labelled = data.train_mask | data.val_mask
    tensors = (data.edge_index, data.train_mask, data.val_mask, data.y[labelled])
    for tensor in (*_numbers(data.x), *tensors):
        digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _numbers(x: Tensor | None) -> tuple[Tensor, ...]:
    """The tensors that features consist of; a sparse matrix may be huge when dense."""
    if x is None:
        return ()
    if x.layout == torch.strided:
        return (x,)
    return x.crow_indices(), x.col_indices(), x.values()


def _describe(value: object) -> str:
    """Say what a parameter is that JSON does not know, the same in every process."""
    text = _ADDRESS.sub("", repr(value))
    if not isinstance(value, nn.Module):
        return text
    # The repr of a module leaves out most of what its constructor stored.
    for module in value.modules():
        stored = {
            name: each
            for name, each in vars(module).items()
            if isinstance(each, _PLAIN) and not name.startswith("_")
        }
        stored.pop("training", None)
        text += f"\n{type(module).__qualname__} {sorted(stored.items())}"
    return _ADDRESS.sub("", text)
