"""A small graph with types: authors, their papers, and venues; as tables too."""

from collections.abc import Mapping
from pathlib import Path

import torch

from gsebo import Graph
from gsebo.data import load

AUTHORS = """id,age,label,split
ann,31,red,train
ben,24,blue,train
cyd,45,red,val
dan,52,blue,test
"""
TABLES = {
    "nodes.author.csv": AUTHORS,
    "nodes.paper.csv": "id,words,pages\n10,1,2\n11,0,3\n12,5,1\n",
    "edges.author.writes.paper.csv": "source,target\nann,10\nben,11\ncyd,12\nann,11\n",
    "edges.paper.cites.paper.csv": "source,target,weight\n11,10,2\n12,11,1\n",
    "edges.paper.at.venue.csv": "source,target\n10,kdd\n11,kdd\n12,www\n",
}
"""Names of the files of a folder, and what they say."""


def write_tables(folder: Path, changes: Mapping[str, str | None] = TABLES) -> Path:
    """Write those tables, of which some say something else, or are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**TABLES, **changes}.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def typed_graph(folder: Path) -> Graph:
    """The graph of those tables."""
    return load(write_tables(folder))


def of_relation(graph: Graph, *relation: str) -> set[tuple[str, str]]:
    """The edges of a relation, by what their ends are called."""
    types = graph.types
    assert types is not None
    chosen = types.edge_type == types.edge_types.index(relation)
    source, target = graph.ids[graph.edge_index[:, chosen].numpy()]
    return set(zip(source.tolist(), target.tolist(), strict=True))


def block(graph: Graph, name: str) -> torch.Tensor:
    """Features of the nodes of a type in its own columns."""
    types = graph.types
    assert types is not None and types.columns is not None
    number = types.node_types.index(name)
    first, end = types.columns[number]
    return graph.x.to_dense()[types.node_type == number, first:end]
