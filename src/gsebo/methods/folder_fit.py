"""Fits on graphs that stay on disk: trained on batches, never read as a whole."""

from __future__ import annotations

import numpy as np
import torch

from gsebo.data.formats.folder import GraphFolder
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.arrays import GraphArrays
from gsebo.memory import require_memory
from gsebo.methods.fitting import NetworkChoices
from gsebo.model.layerwise import require_layers
from gsebo.nn import Backbone

# Nodes whose labels and masks are looked at together, and a batch at least.
_ROWS, _SMALL_BATCH = 2**22, 256


def learnable(folder: GraphFolder) -> GraphArrays:
    """The arrays of a folder, with labels and masks to learn from.

    Raises:
        InvalidInput: Something is missing.
    """
    place, nodes = escaped(str(folder.path)), folder.manifest.num_nodes
    classes, most = folder.manifest.num_classes or 0, max(nodes, 2)
    if classes > most:
        raise InvalidInput(
            f"the graph in {place} has {classes} classes for {nodes} nodes; expected "
            f"{most} at most, numbered 0, 1, 2 and so on."
        )
    arrays = folder.arrays()
    pieces = [slice(begin, begin + _ROWS) for begin in range(0, nodes, _ROWS)]
    masks = {"train_mask": arrays.train, "val_mask": arrays.val}
    for name, found in {"y": arrays.y, **masks}.items():
        is_there = found is not None
        if found is not None and name in masks:
            is_there = any(found[rows].any() for rows in pieces)
        if not is_there:
            raise InvalidInput(
                f"the graph in {place} has no {name}; expected labels, and nodes "
                "to train and to validate on."
            )
    assert arrays.y is not None and arrays.train is not None and arrays.val is not None
    for rows in pieces:
        used = arrays.train[rows] | arrays.val[rows]
        unknown = np.flatnonzero(used & (arrays.y[rows] < 0))
        if len(unknown):
            raise InvalidInput(
                f"node {rows.start + int(unknown[0])} of {place} is in a mask and has "
                "no label; expected a class for every training and validation node."
            )
    arrays.release()
    return arrays


def build(
    network: NetworkChoices, folder: GraphFolder, seed: int, device: torch.device
) -> Backbone:
    """The network for a graph folder, with weights drawn by the seed."""
    manifest = folder.manifest
    assert manifest.num_classes is not None
    dtype = torch.float64 if manifest.dtype == "float64" else torch.float32
    columns, classes = manifest.num_features, manifest.num_classes
    weights = network.count_weights(columns, classes)
    if weights is not None:
        batch = min(manifest.num_nodes, _SMALL_BATCH) * classes
        # Weights, gradients and two moments; predictions with their gradients.
        require_memory((4 * weights + 2 * batch) * dtype.itemsize, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Drawn on the CPU, so that every device starts from the same weights.
        backbone = network.build(columns, classes)
    # Known before a long training rather than after it.
    require_layers(backbone)
    return backbone.to(device, dtype)
