"""``gsebo predict``: classes of a graph's nodes, by a saved model."""

from pathlib import Path
from typing import Annotated, Any

from torch import Tensor
from typer import Argument, Option

from gsebo.cli.folders import Outputs, inferred
from gsebo.cli.options import DataDir, Json, Memory, Model, Normalize, Strengths
from gsebo.cli.output import messages, percent, print_json, print_table
from gsebo.data import load
from gsebo.data.datasets.registry import is_graph_folder
from gsebo.data.formats.folder import GraphFolder
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import accuracy
from gsebo.files import write_atomically
from gsebo.methods import load_model
from gsebo.methods.saving import read_facts


def predict(
    model: Model,
    graph: Annotated[
        str | None,
        Argument(
            metavar="GRAPH",
            help="A name or .npz; by default the graph the model was fitted on.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="Write node, predicted, probability to this CSV file; of a graph "
            "folder to a .parquet or .npy file."
        ),
    ] = None,
    data_dir: DataDir = None,
    normalize: Normalize = None,
    strengths: Strengths = None,
    memory: Memory = "1G",
    json: Json = False,
) -> None:
    """Predict the class of every node of a graph.

    The graph may have other nodes and edges than the one of the fit, with the
    same features. What the fit knew keeps its strength; nodes are matched by
    node_id, or else by position and features.
    """
    fitted, facts = load_model(model), read_facts(model)
    name = graph or facts.dataset
    if name is None:
        raise InvalidInput(
            f"no graph given, and the model in {model} does not remember its own; "
            "expected the name or path of a graph."
        )
    result: dict[str, Any] = {"model": str(model), "graph": name}
    each: dict[str, Any] = {}
    if not fitted.model_.is_held:
        folder = GraphFolder.open(name)
        outputs = Outputs.read(out, strengths, memory)
        result["num_nodes"] = folder.manifest.num_nodes
        result |= inferred(fitted.model_, folder, outputs)
    else:
        if strengths is not None:
            raise InvalidInput(
                f"--strengths {strengths} given with a model of a graph that was in "
                "memory; expected gsebo inspect."
            )
        if is_graph_folder(name):
            data = GraphFolder.open(name).to_data()
        else:
            data = load(name, data_dir=data_dir, normalize=normalize)
        probability, predicted = fitted.predict_proba(data).max(dim=-1)
        new_nodes, new_edges = fitted.model_.new_in(data)
        if out is not None:
            _write(out, predicted, probability)
            messages.note(f"The predictions are in {out}.")
        result |= {
            "num_nodes": predicted.numel(),
            "counts": predicted.bincount(minlength=fitted.num_classes_).tolist(),
            "accuracy": accuracy(predicted, data, None),
            "test_accuracy": accuracy(predicted, data, "test_mask"),
            "new_nodes": new_nodes,
            "new_edges": new_edges,
            "out": None if out is None else str(out),
        }
        each = {"predicted": predicted.tolist(), "probability": probability.tolist()}
    if json:
        print_json({**result, **each})
        return
    _print(result)


def _write(path: Path, predicted: Tensor, probability: Tensor) -> None:
    pairs = zip(predicted.tolist(), probability.tolist(), strict=True)
    lines = ["node,predicted,probability"]
    lines += [f"{node},{label},{p:.6f}" for node, (label, p) in enumerate(pairs)]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _print(result: dict[str, Any]) -> None:
    print_table(
        f"Predicted classes of {result['graph']}, {result['num_nodes']} nodes",
        (">class", ">nodes"),
        enumerate(result["counts"]),
    )
    new_nodes, new_edges = result.get("new_nodes", 0), result.get("new_edges", 0)
    if new_nodes or new_edges:
        print(f"New since the fit: {new_nodes} nodes and {new_edges} edges.")
    for key, nodes in (
        ("accuracy", "all labelled nodes"),
        ("test_accuracy", "the test nodes"),
    ):
        if result.get(key) is not None:
            print(f"Accuracy of {nodes}: {percent(result[key])}")
