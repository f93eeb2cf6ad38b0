"""``gsebo predict``: classes of a graph's nodes, by a saved model."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from typer import Argument, Option

from gsebo.cli.folders import Outputs, inferred
from gsebo.cli.graph_options import GraphOptions, with_features, with_options
from gsebo.cli.options import (
    DataDir,
    Force,
    Json,
    Memory,
    MetricOption,
    Model,
    Normalize,
    Strengths,
    require_new,
)
from gsebo.cli.output import csv_field, messages, print_json, print_table
from gsebo.data.formats.folder import GraphFolder
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import accuracy, require_metric, scores
from gsebo.files import write_atomically
from gsebo.graph.graph import Graph
from gsebo.methods import GraphClassifier, load_model
from gsebo.methods.saving import read_facts
from gsebo.metrics import METRICS
from gsebo.names import own_name


@with_options
def predict(
    model: Model,
    graph: Annotated[
        str | None,
        Argument(
            metavar="GRAPH",
            help="A name, an edge list (CSV, TSV or Parquet), an .npz file, a folder "
            "of tables or a graph folder; by default the graph the model was fitted "
            "on.",
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
    force: Force = False,
    metric: MetricOption = None,
    json: Json = False,
    *,
    tables: GraphOptions,
) -> None:
    """Predict the class of every node of a graph.

    The graph may have other nodes and edges than the one of the fit, with the
    same features. What the fit knew keeps its strength; nodes are matched by
    their ids, or else by position and features.
    """
    require_new(out, strengths, force=force)
    shown = own_name("metric", metric or "accuracy", METRICS)
    fitted, facts = load_model(model), read_facts(model)
    name = graph or facts.dataset
    if name is None:
        raise InvalidInput(
            f"no graph given, and the model in {model} does not remember its own; "
            "expected the name or path of a graph."
        )
    tables.check_tables(name)
    result: dict[str, Any] = {"model": str(model), "graph": name}
    each: dict[str, Any] = {}
    if not fitted.model_.is_held:
        folder = GraphFolder.open(name)
        outputs = Outputs.read(out, strengths, memory)
        result["num_nodes"] = folder.manifest.num_nodes
        result |= inferred(fitted.model_, folder, outputs, shown)
    else:
        if strengths is not None:
            raise InvalidInput(
                f"--strengths {strengths} given with a model of a graph that was in "
                "memory; expected gsebo inspect."
            )
        data = tables.load_graph(name, data_dir=data_dir, normalize=normalize)
        if fitted.reads_features():
            data = with_features(data)
        every = fitted.predict_proba(data)
        probability, predicted = every.max(dim=-1)
        new_nodes, new_edges = fitted.model_.new_in(data)
        shown_nodes = _classified(fitted, data)
        told = predicted.numpy()[shown_nodes]
        each = {
            "node": data.ids[shown_nodes].tolist(),
            "predicted": fitted.classes_[told].tolist(),
            "probability": probability.numpy()[shown_nodes].tolist(),
        }
        if "y" in data:
            data.y = fitted.labels_of(data)
            require_metric(shown, data, classes=fitted.num_classes_)
        if out is not None:
            _write(out, each)
            messages.note(f"The predictions are in {out}.")
        result |= {
            "num_nodes": len(told),
            "counts": np.bincount(told, minlength=fitted.num_classes_).tolist(),
            "accuracy": accuracy(predicted, data, None),
            "test_accuracy": accuracy(predicted, data, "test_mask"),
            "all": scores(every, data, None),
            "test": scores(every, data, "test_mask"),
            "new_nodes": new_nodes,
            "new_edges": new_edges,
            "out": None if out is None else str(out),
        }
    result |= {"classes": fitted.classes_.tolist(), "metric": shown}
    if json:
        print_json({**result, **each})
        return
    _print(result)


def _classified(fitted: GraphClassifier, data: Graph) -> NDArray[np.int64]:
    """Numbers of the nodes that are told of: of several types one has classes."""
    known, types = fitted.model_.held[0].types, data.types
    chosen = torch.ones(int(data.num_nodes), dtype=torch.bool)
    if known is not None and types is not None and known.classified is not None:
        chosen = types.node_type == known.classified
    return chosen.nonzero()[:, 0].numpy()


def _write(path: Path, columns: dict[str, list[Any]]) -> None:
    lines = [",".join(columns)]
    # Ids and names of classes may be any text.
    lines += [
        f"{csv_field(node)},{csv_field(predicted)},{probability:.6f}"
        for node, predicted, probability in zip(*columns.values(), strict=True)
    ]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _print(result: dict[str, Any]) -> None:
    print_table(
        f"Predicted classes of {result['graph']}, {result['num_nodes']} nodes",
        (">class", ">nodes"),
        zip(result["classes"], result["counts"], strict=True),
    )
    new_nodes, new_edges = result.get("new_nodes", 0), result.get("new_edges", 0)
    if new_nodes or new_edges:
        print(f"New since the fit: {new_nodes} nodes and {new_edges} edges.")
    metric = METRICS[result["metric"]]
    title = metric.title[:1].upper() + metric.title[1:]
    for key, nodes in (("all", "all labelled nodes"), ("test", "the test nodes")):
        value = result.get(key, {}).get(result["metric"])
        if value is not None:
            print(f"{title} of {nodes}: {metric.written(value)}")
