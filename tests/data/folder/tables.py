"""Edge lists and node tables as files, and graphs to compare with."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.graph.topology import canonicalise

Rows = list[tuple[int, int]]

edge_rows = (
    st.integers(2, 12)
    .flatmap(
        lambda n: st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)),
            min_size=1,
            max_size=60,
        )
    )
    .filter(lambda rows: any(source != target for source, target in rows))
)


def text_of(rows: Rows, delimiter: str = ",", end: str = "\n") -> str:
    return "".join(f"{source}{delimiter}{target}{end}" for source, target in rows)


def write_parquet(path: Path, **columns: object) -> Path:
    parquet.write_table(pa.table(columns), path, row_group_size=7)
    return path


def canonical_edges(rows: Rows, num_nodes: int, undirected: bool = False) -> np.ndarray:
    """What the package makes of these edges in memory."""
    edges = torch.tensor(rows).T
    if undirected:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    graph = canonicalise(Data(edge_index=edges, num_nodes=num_nodes))
    return graph.edge_index.numpy()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
