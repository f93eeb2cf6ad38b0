"""Airports of the USA joined by flights (Ribeiro et al., struc2vec, 2017).

Nodes are numbered by first appearance in the list of edges, features are the degree,
one-hot, and the masks are those that GAug (Zhao et al., 2021) published.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from gsebo.data.edge_list import undirected
from gsebo.data.restricted_pickle import read_pickle


def convert_air_usa(files: Mapping[str, bytes]) -> Data:
    """Make the graph from struc2vec's two text files and GAug's split."""
    names = files["usa-airports.edgelist"].decode().split()
    node_of = {name: node for node, name in enumerate(dict.fromkeys(names))}
    ends = np.array([node_of[name] for name in names], dtype=np.int64)
    edge_index = undirected(ends[0::2], ends[1::2], len(node_of))
    _, *labelled = files["labels-usa-airports.txt"].decode().splitlines()
    label_of = dict(line.split() for line in labelled if line.strip())
    degree = torch.bincount(edge_index[0], minlength=len(node_of))
    graph = Data(
        x=one_hot(degree - 1).float(),
        edge_index=edge_index,
        y=torch.tensor([int(label_of[name]) for name in node_of]),
    )
    split = read_pickle(files["airport_tvt_nids.pkl"])
    for key, nodes in zip(("train_mask", "val_mask", "test_mask"), split, strict=True):
        mask = np.isin(np.arange(len(node_of)), nodes)
        graph[key] = torch.from_numpy(mask)
    return graph
