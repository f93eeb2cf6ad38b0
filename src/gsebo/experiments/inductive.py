"""Fits that do not see some nodes, and are then asked about them."""

import warnings

from torch import Tensor
from torch_geometric.data import Data

from gsebo.data import visible_part
from gsebo.data.unseen import has_unseen
from gsebo.errors import InputWarning
from gsebo.methods import GraphClassifier


def fitted_graph(data: Data) -> Data:
    """The part of a graph that a fit may see: all of it, unless there is a mask."""
    return visible_part(data) if has_unseen(data) else data


def predicted_classes(model: GraphClassifier, data: Data) -> Tensor:
    """Class of every node of the whole graph, ``[nodes]``.

    Args:
        model: Fitted on :func:`fitted_graph`.
        data: The whole graph.
    """
    if not has_unseen(data):
        return model.transduction_
    with warnings.catch_warnings():
        # That new edges get the vanilla weight is what is measured here.
        warnings.simplefilter("ignore", InputWarning)
        return model.predict(data)


def visible_noise(data: Data, noise: int) -> int:
    """How many of the false edges the fit saw.

    Args:
        data: The whole graph.
        noise: How many false edges were added, in both directions, at its end.
    """
    if not has_unseen(data):
        return noise
    false = data.edge_index[:, data.num_edges - 2 * noise :]
    return int((~data.unseen_mask[false]).all(0).sum()) // 2
