"""Fits on graphs that stay on disk: trained on batches, never read as a whole."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.manifest import Manifest
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.arrays import GraphArrays
from gsebo.memory import require_memory
from gsebo.methods.outcome import Outcome
from gsebo.methods.prepare import NetworkChoices
from gsebo.model.layerwise import require_layers
from gsebo.nn import Backbone

if TYPE_CHECKING:
    from gsebo.methods.base import Run


class FitsFolders(Protocol):
    """An estimator that can train on a graph folder."""

    batch_size: int | None

    @abstractmethod
    def train_on_folder(self, folder: GraphFolder, run: Run) -> Outcome:
        """Train on batches of a graph on disk."""


def on_folders(estimator: Any) -> FitsFolders | None:
    """An estimator that is set up to train on parts of a graph folder."""
    able = hasattr(estimator, "train_on_folder") and estimator.batch_size is not None
    return estimator if able else None


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
    for name, found in (
        ("y", arrays.y),
        ("train_mask", arrays.train),
        ("val_mask", arrays.val),
    ):
        if found is None or (name != "y" and not _any(found)):
            raise InvalidInput(
                f"the graph in {place} has no {name}; expected labels, and nodes "
                "to train and to validate on."
            )
    assert arrays.y is not None and arrays.train is not None
    for begin in range(0, arrays.num_nodes, _ROWS):
        rows = slice(begin, begin + _ROWS)
        used = arrays.train[rows] | arrays.val[rows]  # type: ignore[index]
        if (arrays.y[rows][used] < 0).any():
            first = begin + int(np.flatnonzero(used & (arrays.y[rows] < 0))[0])
            raise InvalidInput(
                f"node {first} of {place} is in a mask and has no label; "
                "expected a class for every training and validation node."
            )
    arrays.release()
    return arrays


_ROWS = 2**22


def _any(mask: np.ndarray) -> bool:
    return any(
        bool(mask[begin : begin + _ROWS].any()) for begin in range(0, len(mask), _ROWS)
    )


def build(
    network: NetworkChoices, folder: GraphFolder, seed: int, device: torch.device
) -> Backbone:
    """The network for a graph folder, with weights drawn by the seed."""
    manifest = folder.manifest
    assert manifest.num_classes is not None
    dtype = torch.float64 if manifest.dtype == "float64" else torch.float32
    with torch.random.fork_rng(devices=[]):
        if isinstance(network.backbone, str):
            _require_room(network, manifest, dtype.itemsize, device)
        torch.manual_seed(seed)
        # Drawn on the CPU, so that every device starts from the same weights.
        backbone = network.build(manifest.num_features, manifest.num_classes)
    # Known before a long training rather than after it.
    require_layers(backbone)
    return backbone.to(device, dtype)


def _require_room(
    network: NetworkChoices, manifest: Manifest, item: int, device: torch.device
) -> None:
    """Raise if features or classes are so many that the network cannot be trained."""
    classes = manifest.num_classes or 0
    with torch.device("meta"):
        # Without memory: weights have shapes and no numbers.
        weights = network.build(manifest.num_features, classes).parameters()
        numbers = sum(weight.numel() for weight in weights)
    batch = min(manifest.num_nodes, _SMALL_BATCH) * classes
    # Weights, gradients and two moments; predictions with their gradients.
    require_memory((4 * numbers + 2 * batch) * item, device)


_SMALL_BATCH = 256
