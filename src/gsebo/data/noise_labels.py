"""Training and validation labels that are wrong."""

from copy import copy

import numpy as np
import torch
from torch_geometric.data import Data

from gsebo.data.features import whole_numbers
from gsebo.data.noise_share import share_of
from gsebo.data.seeding import seeded_generator
from gsebo.errors import InvalidInput

_LEARNED_FROM = ("train_mask", "val_mask")


def replace_labels(data: Data, percent: int, seed: int = 0) -> Data:
    """Return a copy of a graph with other training and validation labels.

    Of the training nodes, and likewise of the validation nodes, so many percent are
    drawn. Each gets another class, drawn evenly from the classes that training and
    validation nodes have. No other label is read or changed, so that accuracy on test
    nodes is measured with the true ones.

    Args:
        data: The graph.
        percent: Of the labels of each of the two sets.
        seed: Decides which, and what they become.

    Raises:
        InvalidInput: ``percent`` is not from 0 to 100, labels or masks are missing, or
            there is one class only.
    """
    for key in ("y", *_LEARNED_FROM):
        if key not in data or not isinstance(data[key], torch.Tensor):
            raise InvalidInput(
                f"the graph has no {key}: expected a tensor, to change labels."
            )
        given = whole_numbers(data, key)
        if given.ndim != 1 or len(given) != len(data.y):
            raise InvalidInput(
                f"{key} has shape {list(given.shape)} and dtype {given.dtype}: "
                "expected one class or truth value per node, to change labels."
            )
    labels = whole_numbers(data, "y").copy()
    sets = [np.flatnonzero(whole_numbers(data, key)) for key in _LEARNED_FROM]
    classes = np.unique(labels[np.concatenate(sets)])
    if len(classes) < 2:
        raise InvalidInput(
            f"training and validation nodes have {len(classes)} classes: expected at "
            "least two, to change labels."
        )
    generator = seeded_generator(seed)
    for nodes in sets:
        count = share_of(percent, len(nodes))
        chosen = generator.choice(nodes, count, replace=False)
        # One of the others: a step of 1 to classes - 1 around the circle of classes.
        steps = generator.integers(1, len(classes), size=count)
        place = np.searchsorted(classes, labels[chosen]) + steps
        labels[chosen] = classes[place % len(classes)]
    noisy = copy(data)
    noisy.y = torch.from_numpy(labels).to(data.y)
    return noisy
