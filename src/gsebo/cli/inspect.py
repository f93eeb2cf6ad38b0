"""``gsebo inspect``: which edges a model weakened or strengthened."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gsebo.cli.options import Json, Model
from gsebo.cli.output import messages, print_json
from gsebo.errors import InvalidInput

if TYPE_CHECKING:
    from gsebo.methods import GraphClassifier


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
    from gsebo.cli.edge_changes import summarise
    from gsebo.cli.edge_tables import print_changes
    from gsebo.cli.model_folder import read_model

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


def _export(model: "GraphClassifier", path: Path) -> None:
    from gsebo.cli.edge_changes import ratios
    from gsebo.files import write_atomically

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
