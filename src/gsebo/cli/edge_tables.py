"""Tables of what a fit did to the edges."""

from typing import Any

from gsebo.cli.edge_facts import ChangedEdge, EdgeChanges, EdgeGroup, LayerChanges
from gsebo.cli.output import print_table

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
