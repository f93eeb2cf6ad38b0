"""Quick automatic fits and graphs to choose for."""

from typing import Any

from torch_geometric.data import Data

from gsebo import Auto, generate_graph


def auto(**changes: Any) -> Auto:
    """Quick, but long enough to tell what is better."""
    options = {
        "hidden_channels": 8,
        "max_epochs": 40,
        "evaluate_every": 10,
        "inner_lr": 0.05,
        "methods": "vanilla,mlp",
        "features": "given",
        "num_folds": 2,
        "device": "cpu",
        "random_state": 0,
    }
    return Auto(**options | changes)


def bare(data: Data) -> Data:
    """The same graph without features."""
    keys = ("edge_index", "y", "train_mask", "val_mask", "test_mask")
    return Data(**{key: data[key] for key in keys})


def graph(**changes: Any) -> Data:
    options = {"split": "random:20/30/50", "average_degree": 6.0, "num_features": 8}
    return generate_graph(150, **options | changes)
