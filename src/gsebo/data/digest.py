"""One number for what a graph holds, whatever file it came from."""

import hashlib

import numpy as np
from torch_geometric.data import Data

from gsebo.data.features import features_to_csr, whole_numbers
from gsebo.data.npz import MASK_TABLES, MASKS


def content_digest(data: Data) -> str:
    """Return the sha256 of a graph's edges, raw features, labels and masks.

    It does not depend on how the features are stored, on the width of integers, on
    ``meta`` or on the archive around the arrays.

    Raises:
        InvalidInput: A part of it is not what a graph consists of.
    """
    features = features_to_csr(data.x)
    arrays = {
        "edge_index": whole_numbers(data, "edge_index").astype("<i8"),
        "x_data": features.data.astype("<f4"),
        "x_indices": features.indices.astype("<i8"),
        "x_indptr": features.indptr.astype("<i8"),
        "x_shape": np.array(features.shape, dtype="<i8"),
    }
    for key in ("y", *MASKS, *MASK_TABLES):
        if key in data and data[key] is not None:
            arrays[key] = whole_numbers(data, key).astype("<i8")
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).tobytes())
    return digest.hexdigest()
