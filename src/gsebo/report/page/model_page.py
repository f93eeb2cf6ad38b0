"""What a saved model says of the edges of its graph, as the content of a page."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data import load
from gsebo.errors import InvalidInput
from gsebo.graph import CanonicalGraph
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import NodeKeys
from gsebo.methods import GraphClassifier, load_model
from gsebo.methods.saving import ModelFacts, read_facts
from gsebo.model.fitted import FittedModel
from gsebo.report.page.graph_page import GraphPage
from gsebo.sparse import Pattern, make_features
from gsebo.sparse.operators import unit_rows
from gsebo.structure.evidence import entry_products
from gsebo.version import __version__

Array = NDArray[Any]
# Changes of a strength that a reader should hear of.
_LITTLE = 0.01


def model_page(folder: Path, *, data_dir: Path | None = None) -> GraphPage:
    """Gather what a model says of its edges, one row for each.

    An edge is suspicious as far as the model's own predictions at its ends disagree:
    the score is 1 - p·q of their class probabilities. Both directions of an edge are
    one row, with the mean of what they have.

    Raises:
        InvalidInput: There is no model, or it does not hold its graph.
    """
    fitted, facts = load_model(folder), read_facts(folder)
    model = fitted.model_
    if not model.is_held:
        raise InvalidInput(
            f"{folder} was fitted on a graph folder, which it does not hold; expected "
            f"the model of a graph in memory (gsebo inspect {folder} reads folders)."
        )
    graph, _ = model.held
    known = _graph_of_the_fit(facts, model, data_dir)
    one_way, directed = _one_way(graph)
    ends = graph.edge_index.cpu()[:, one_way].numpy()
    classes = _class_names(fitted, known)
    nodes = _nodes(fitted, known, classes)
    columns = _columns(fitted, graph, one_way, directed, known)
    order = np.argsort(-columns["score"], kind="stable")
    ends = ends[:, order]
    edges = pandas.DataFrame({name: values[order] for name, values in columns.items()})
    ids = nodes["id"].to_numpy()
    for place, (name, end) in enumerate(zip(("source", "target"), ends, strict=True)):
        edges.insert(place, name, ids[end])
    edges["reason"] = _reasons(edges, ends, nodes)
    return GraphPage(
        title=f"What the model in {folder.name or folder} says of its edges",
        sentences=_sentences(edges, facts, known),
        edges=edges,
        ends=ends,
        nodes=nodes,
        history=facts.history,
        facts={
            "graph": facts.dataset or "not remembered",
            "nodes": graph.num_nodes,
            "edges": len(edges),
            "method": facts.method,
            "network": facts.parameters.get("backbone", ""),
            "seed": facts.seed,
            "best step": facts.best_step,
            "gsebo": __version__,
        },
        directed=directed,
    )


def _graph_of_the_fit(
    facts: ModelFacts, model: FittedModel, data_dir: Path | None
) -> Graph | None:
    """The graph that the model remembers, if it is at hand and has the same nodes."""
    if facts.dataset is None:
        return None
    try:
        data = load(facts.dataset, data_dir=data_dir, download=False)
    except InvalidInput:
        return None
    nodes = model.nodes or NodeKeys(model.held[0].num_nodes)
    if int(data.num_nodes) != nodes.num_nodes:
        return None
    same = torch.equal(nodes.find(NodeKeys.of(data)), torch.arange(nodes.num_nodes))
    return data if same else None


def _one_way(graph: CanonicalGraph) -> tuple[Tensor, bool]:
    """Which edges get a row, and whether the graph is directed.

    Where every edge has its reverse, the one that leads to the larger number.
    """
    source, target = graph.edge_index.cpu()
    if bool((graph.reverse_edge < 0).any()):
        return torch.ones_like(source, dtype=torch.bool), True
    return source < target, False


def _class_names(fitted: GraphClassifier, known: Graph | None) -> list[str]:
    names = None if known is None else known.class_names
    names = names or getattr(fitted.graph_, "class_names", None)
    count = max(fitted.num_classes_, int(fitted.graph_.y.max()) + 1)
    if names is None or len(names) < count:
        return [str(number) for number in range(count)]
    return names


def _nodes(
    fitted: GraphClassifier, known: Graph | None, classes: list[str]
) -> pandas.DataFrame:
    confidence, predicted = fitted.probability_.max(dim=-1)
    names = np.array([*classes, None], object)
    labels = fitted.graph_.y.cpu().numpy()
    keys = fitted.model_.nodes
    if known is not None:
        ids: Array = known.ids
    elif keys is not None and keys.node_id is not None:
        ids = np.asarray(keys.node_id)
    else:
        ids = np.arange(len(labels))
    return pandas.DataFrame(
        {
            "id": ids,
            "label": names[np.where(labels >= 0, labels, -1)],
            "predicted": names[predicted.numpy()],
            "confidence": confidence.double().numpy(),
        }
    )


def _columns(
    fitted: GraphClassifier,
    graph: CanonicalGraph,
    one_way: Tensor,
    directed: bool,
    known: Graph | None,
) -> dict[str, Array]:
    """Numbers of each row: first the score, then what is known beside it."""
    model, edges = fitted.model_, graph.edge_index.cpu()

    def of_rows(values: Tensor) -> Array:
        """Mean over layers and over both directions, ``[rows]``."""
        each = values.detach().cpu().double()
        each = each.reshape(-1, each.shape[-1])[:, : graph.num_edges].mean(0)
        if not directed:
            each = (each + each[graph.reverse_edge.cpu()]) / 2
        found: Array = each[one_way].numpy()
        return found

    probability = fitted.probability_.double()
    agreement = (probability[edges[0]] * probability[edges[1]]).sum(-1)
    found = {"score": 1 - of_rows(agreement), "agreement": of_rows(agreement)}
    if known is not None and known.x is not None:
        found["cosine"] = of_rows(_cosine(known, edges))
    if model.learned and model.strengths is not None and model.start is not None:
        strength, start = of_rows(model.strengths), of_rows(model.start)
        ratio = np.divide(
            strength, start, out=np.full_like(start, np.nan), where=start > 0
        )
        found |= {"strength": strength, "start": start, "ratio": ratio}
    if model.scorer is not None and model.scorer.weights is not None:
        found["learned_weight"] = of_rows(model.scorer.weights)
    return found


def _cosine(graph: Graph, edges: Tensor) -> Tensor:
    source, target = edges
    features = unit_rows(make_features(graph.x, torch.float32, "cpu"))
    return entry_products(
        features, Pattern.from_positions(target, source, int(features.shape[0]))
    )


def _reasons(
    edges: pandas.DataFrame, ends: Array, nodes: pandas.DataFrame
) -> list[str]:
    """Why each row stands where it does, in a sentence."""
    label, predicted = nodes["label"].tolist(), nodes["predicted"].tolist()
    confidence = nodes["confidence"].tolist()
    nothing = [np.nan] * len(edges)
    more = [
        edges[name].tolist() if name in edges else nothing
        for name in ("agreement", "cosine", "ratio")
    ]

    def reason(
        one: int, other: int, agreement: float, cosine: float, ratio: float
    ) -> str:
        sure = [f"{100 * confidence[end]:.0f} %" for end in (one, other)]
        words = [
            f"{predicted[one]} ({sure[0]}) and {predicted[other]} ({sure[1]}) agree to "
            f"{100 * agreement:.0f} %"
        ]
        if label[one] is not None and label[other] is not None:
            if label[one] != label[other]:
                words.append(f"known classes {label[one]} and {label[other]} differ")
            else:
                words.append(f"both are known to be {label[one]}")
        # A number that is not known differs from itself.
        if cosine == cosine:
            words.append(f"cosine of features {cosine:.2f}")
        if ratio == ratio and abs(ratio - 1) > _LITTLE:
            change = "weakened" if ratio < 1 else "strengthened"
            words.append(f"{change} to {ratio:.2f} of its start")
        return "; ".join(words)

    rows = zip(*ends.tolist(), *more, strict=True)
    return [reason(*row) for row in rows]


def _sentences(
    edges: pandas.DataFrame, facts: ModelFacts, known: Graph | None
) -> tuple[str, ...]:
    doubtful = int((edges["score"] > 0.5).sum())
    graph = facts.dataset or "GRAPH"
    said = [
        f"At {doubtful:,} of {len(edges):,} edges the model's predictions at both ends "
        "disagree more than they agree; those stand first.",
        "The score is 1 - agreement, the share of disagreement of the predictions. "
        "Nothing was calibrated: how many of the first edges are wrong is not known. "
        f"`gsebo suspects {graph} --page suspects.html` says it.",
    ]
    if known is None:
        said.append(
            "The graph of the fit is not at hand, so that features are not compared."
        )
    return tuple(said)
