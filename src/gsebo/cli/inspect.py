"""``gsebo inspect``: which edges a model weakened or strengthened."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Option

from gsebo.cli.edge_changes import (
    ChangedEdge,
    EdgeChanges,
    EdgeGroup,
    LayerChanges,
    fitted_edges,
    ratios,
    summarise_pieces,
)
from gsebo.cli.predict import read_model
from gsebo.cli.ui.options import Json, Model
from gsebo.cli.ui.output import messages, print_json, print_table
from gsebo.data.formats.folder import GraphFolder, is_graph_folder
from gsebo.errors import InvalidInput
from gsebo.files import write_atomically
from gsebo.methods import GraphClassifier
from gsebo.methods.folder_fit import graph_checksum
from gsebo.model.large import EdgePiece, Room

_BAR_WIDTH = 40


def print_changes(about: dict[str, Any], changes: EdgeChanges) -> None:
    """Print everything of interest.

    Args:
        about: Facts of the model.
        changes: What happened to its edges.
    """
    graph = about["dataset"] or "an unnamed graph"
    print_table(
        f"{about['method']} with {about['backbone']} on {graph}",
        ("", ""),
        [
            ("graph", f"{changes.num_nodes} nodes, {changes.num_edges} edges"),
            ("seed", about["seed"]),
            ("best step", about["best_step"]),
            ("edges added", about["added_edges"]),
        ],
    )
    if not changes.learned:
        print("Nothing was learned about the edges: each counts as at the start.")
        return
    if changes.unchanged_everywhere and not about["added_edges"]:
        print("No edge changed: the best step came before the first change.")
        return
    for layer in changes.layers:
        _print_layer(layer)


def _print_layer(layer: LayerChanges) -> None:
    where = "" if layer.layer is None else f", layer {layer.layer}"
    print_table(
        f"Edges{where}",
        ("", ">edges", ">mean strength / start"),
        [
            _group_row("weakened", layer.weakened),
            _group_row("unchanged", layer.unchanged),
            _group_row("strengthened", layer.strengthened),
            _group_row("within a class", layer.within_class),
            _group_row("between classes", layer.between_classes),
        ],
    )
    largest = max((bar.count for bar in layer.histogram), default=0)
    print_table(
        f"Strength / start{where}",
        (">from", ">below", ">edges", ""),
        (
            (bar.low, bar.high, bar.count, _bar(bar.count, largest))
            for bar in layer.histogram
        ),
    )
    if layer.most_changed:
        _print_edges(f"Changed most{where}", layer.most_changed)


def _print_edges(title: str, edges: tuple[ChangedEdge, ...]) -> None:
    print_table(
        title,
        (">source", ">target", ">start", ">strength", ">ratio", "classes"),
        (
            (
                edge.source,
                edge.target,
                f"{edge.start:.4f}",
                f"{edge.strength:.4f}",
                None if edge.ratio is None else f"{edge.ratio:.3f}",
                f"{_class(edge.source_class)} - {_class(edge.target_class)}",
            )
            for edge in edges
        ),
    )


def _group_row(name: str, group: EdgeGroup) -> tuple[object, ...]:
    ratio = None if group.mean_ratio is None else f"{group.mean_ratio:.4f}"
    return name, group.count, ratio


def _bar(count: int, largest: int) -> str:
    """Draw a count so that none but zero is invisible."""
    return "#" * -(-_BAR_WIDTH * count // max(largest, 1))


def _class(number: int | None) -> str:
    return "?" if number is None else str(number)


def inspect(
    model: Model,
    top: Annotated[
        int, Option(min=0, help="How many of the most changed edges to name.")
    ] = 10,
    export: Annotated[
        Path | None, Option(help="Write every edge to this CSV file.")
    ] = None,
    graph: Annotated[
        str | None,
        Option(
            help="The graph folder of the fit, if it is not where it was.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show which edges were weakened or strengthened, and between whom.

    Strengths are compared with the start, the propagation of the network as it is.
    """
    fitted, facts = read_model(model)
    edges = _Edges.of(fitted, graph or facts.dataset, model)
    changes = summarise_pieces(edges.pieces(), edges.labels, **edges.facts, top=top)
    if export is not None:
        write_atomically(export, _lines(edges.pieces))
        messages.note(f"The edges are in {export}.")
    about = {
        "model": str(model),
        "dataset": facts.dataset,
        "method": facts.method,
        "backbone": facts.parameters["backbone"],
        "seed": facts.seed,
        "best_step": facts.best_step,
        "added_edges": edges.added,
    }
    if json:
        print_json({**about, **asdict(changes)})
        return
    print_changes(about, changes)


class _Edges(NamedTuple):
    """The edges of a model's graph, in memory or on disk.

    Attributes:
        pieces: Goes through them.
        labels: Class of each node, if known.
        facts: What else is told of the graph.
        added: How many edges the method has added.
    """

    pieces: Callable[[], Iterable[EdgePiece]]
    labels: Any
    facts: dict[str, Any]
    added: int

    @classmethod
    def of(cls, fitted: GraphClassifier, graph: str | None, model: Path) -> "_Edges":
        if not hasattr(fitted, "large_model_"):
            piece = fitted_edges(fitted)
            facts = {
                "learned": fitted.model_.learned,
                "num_nodes": fitted.model_.graph.num_nodes,
            }
            added = int(fitted.new_edge_index_.shape[1])
            return cls(lambda: [piece], fitted.graph_.y.cpu().numpy(), facts, added)
        if graph is None or not is_graph_folder(graph):
            raise InvalidInput(
                f"{model} was fitted on a graph folder, and {graph or 'nothing'} is "
                "none; expected that folder as --graph."
            )
        folder = GraphFolder.open(graph)
        arrays, known = folder.arrays(), graph_checksum(folder)
        return cls(
            lambda: fitted.large_model_.edge_strengths(arrays, known, Room()),
            arrays.y,
            {"learned": True, "num_nodes": arrays.num_nodes},
            0,
        )


def _lines(pieces: Callable[[], Iterable[EdgePiece]]) -> Iterator[bytes]:
    """A line for each edge, of one layer after another."""
    layers: int | None = None
    number = 0
    while number < (layers or 1):
        for edges, start, strength in pieces():
            if layers is None:
                layers = len(strength) if strength.dim() == 2 else 0
                head = f"source,target,{'layer,' * (layers > 0)}start,strength,ratio\n"
                yield head.encode()
            row = strength[number] if layers else strength
            layer = f"{number}," if layers else ""
            columns = *edges, start, row, ratios(start, row)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            yield "".join(
                f"{a},{b},{layer}{before:.9g},{after:.9g},{_ratio(ratio)}\n"
                for a, b, before, after, ratio in rows
            ).encode()
        number += 1


def _ratio(ratio: float) -> str:
    """Leave a ratio empty that is not defined (NaN differs from itself)."""
    return f"{ratio:.9g}" if ratio == ratio else ""
