"""The page about suspicious edges: what was found of a graph, to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gsebo.errors import InvalidInput, escaped
from gsebo.files import check_writable, write_atomically
from gsebo.report.page.graph_page import GraphPage, graph_page
from gsebo.version import __version__

if TYPE_CHECKING:
    from gsebo.suspects.detector import SuspiciousEdges
    from gsebo.suspects.missing import MissingEdges


def write_page(
    found: SuspiciousEdges,
    path: str | os.PathLike[str],
    *,
    missing: MissingEdges | None = None,
    graph: str = "a graph",
    overwrite: bool = False,
) -> None:
    """Write a page about the suspicious edges of a graph, which needs no other file.

    Args:
        found: After its fit.
        path: The file.
        missing: Pairs that should be joined, to be shown as well.
        graph: What the graph is called.
        overwrite: Whether a file that is there may be replaced.

    Raises:
        InvalidInput: There was no fit, or a file is there already.
    """
    if not hasattr(found, "edges_"):
        raise InvalidInput("no graph was fitted yet; expected a call of fit.")
    place = Path(path)
    if os.path.lexists(place) and not overwrite:
        raise InvalidInput(
            f"{place} is there already; expected another name, or overwrite=True."
        )
    check_writable(place.parent)
    page = GraphPage(
        title=f"Suspicious edges of {escaped(Path(graph).name)}",
        sentences=found.sentences_ + (missing.sentences if missing else ()),
        edges=found.edges_,
        ends=found.ends_,
        nodes=found.nodes_,
        expected=found.expected_ if len(found.expected_) else None,
        missing=None if missing is None else missing.table,
        missing_ends=None if missing is None else missing.ends,
        facts={
            "graph": escaped(graph),
            "nodes": len(found.nodes_),
            "edges": len(found.edges_),
            "rounds": found.rounds,
            "seed": found.seed_,
            "gsebo": __version__,
        },
    )
    write_atomically(place, graph_page(page).encode("utf-8"))
