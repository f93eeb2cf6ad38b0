"""``gsebo inspect``: which edges a model weakened or strengthened."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from gsebo.cli.edge_changes import (
    ChangedEdge,
    EdgeChanges,
    EdgeGroup,
    LayerChanges,
    ratios,
    summarise,
)
from gsebo.cli.predict import read_model
from gsebo.cli.ui.options import Json, Model
from gsebo.cli.ui.output import messages, print_json, print_table
from gsebo.errors import InvalidInput
from gsebo.files import write_atomically
from gsebo.methods import GraphClassifier

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
    json: Json = False,
) -> None:
    """Show which edges were weakened or strengthened, and between whom.

    Strengths are compared with the start, the propagation of the network as it is.
    """
    fitted, facts = read_model(model)
    if hasattr(fitted, "large_model_"):
        raise InvalidInput(
            f"{model} is a model of a graph folder; expected one of a graph in memory, "
            "or gsebo predict with --strengths."
        )
    changes = summarise(fitted, top=top)
    if export is not None:
        _export(fitted, export)
        messages.note(f"The edges are in {export}.")
    about = {
        "model": str(model),
        "dataset": facts.dataset,
        "method": facts.method,
        "backbone": facts.parameters["backbone"],
        "seed": facts.seed,
        "best_step": facts.best_step,
        "added_edges": fitted.new_edge_index_.shape[1],
    }
    if json:
        print_json({**about, **asdict(changes)})
        return
    print_changes(about, changes)


def _export(model: GraphClassifier, path: Path) -> None:
    per_layer = model.strength_.dim() == 2
    strengths = model.strength_ if per_layer else model.strength_.unsqueeze(0)
    sources, targets = model.graph_.edge_index.tolist()
    start = model.initial_strength_
    lines = ["source,target,layer,start,strength,ratio"]
    if not per_layer:
        lines = ["source,target,start,strength,ratio"]
    for number, strength in enumerate(strengths):
        layer = f"{number}," if per_layer else ""
        columns = (
            sources,
            targets,
            start.tolist(),
            strength.tolist(),
            ratios(start, strength).tolist(),
        )
        lines += [
            f"{a},{b},{layer}{before:.9g},{after:.9g},{_ratio(ratio)}"
            for a, b, before, after, ratio in zip(*columns, strict=True)
        ]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _ratio(ratio: float) -> str:
    """Leave a ratio empty that is not defined (NaN differs from itself)."""
    return f"{ratio:.9g}" if ratio == ratio else ""
