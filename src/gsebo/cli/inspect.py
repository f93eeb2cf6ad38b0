"""``gsebo inspect``: which edges are suspicious to a model, and what it did to them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typer import Option

from gsebo.cli.edge_files import EdgeFile
from gsebo.cli.options import Force, Json, Model, require_new
from gsebo.cli.output import messages, print_json, print_table, print_text
from gsebo.data.datasets.registry import is_graph_folder
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.validate import sized
from gsebo.errors import InvalidInput
from gsebo.graph.graph import as_graph
from gsebo.methods import GraphClassifier, load_model
from gsebo.methods.edges import EdgeTable, NodeNames, Sort
from gsebo.methods.parameters import require_choice
from gsebo.methods.saving import read_facts
from gsebo.model.fitted import EdgePiece

Array = NDArray[Any]

# Above the rounding of a float32, below anything that matters.
_TOLERANCE = 1e-6
_BINS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2.0, float("inf"))
_BAR_WIDTH = 40
_GROUPS = {
    "weakened": "weakened",
    "unchanged": "unchanged",
    "strengthened": "strengthened",
    # Of two nodes whose classes are known, self-loops apart.
    "within_class": "within a class",
    "between_classes": "between classes",
}


_TITLES: dict[Sort, str] = {
    "suspicious": "Most suspicious edges: ends that seem to be of different classes",
    "agreement": "Edges with the least agreement of both ends",
    "weight": "Edges of the least weight",
    "strength": "Edges of the least strength",
    "ratio": "Most weakened edges",
    "changed": "Most changed edges",
    "strengthened": "Most strengthened edges",
}
_SORTS = ", ".join(get_args(Sort))


def inspect(
    model: Model,
    top: Annotated[int, Option(min=0, help="How many edges to name.")] = 10,
    sort: Annotated[
        str,
        Option(
            help=f"Which edges to name first: {_SORTS}. Of agreement, weight, strength "
            "and ratio (strength / start) the least come first."
        ),
    ] = "suspicious",
    export: Annotated[
        Path | None,
        Option(help="Write every edge to this .csv, .parquet or .graphml file."),
    ] = None,
    graph: Annotated[
        str | None,
        Option(
            help="The graph folder of the fit, if it is not where it was.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show which edges are suspicious, and which were weakened or strengthened.

    An edge is suspicious if the model takes its ends for nodes of different
    classes. Strengths are compared with the start, the propagation of the
    network as it is.
    """
    require_choice("--sort", sort, get_args(Sort))
    place = None if export is None else EdgeFile.at(export)
    require_new(export, force=force)
    fitted, facts = load_model(model), read_facts(model)
    edges = ModelEdges.of(fitted, graph or facts.dataset, model)
    changes = edges.summary(top)
    named, used = edges.first(cast(Sort, sort), top)
    if place is not None:
        place.write(edges.tables, edges.ids, edges.names)
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
    rows = edges.rows(named)
    if json:
        print_json({**about, **changes, "sort": used, "edges": rows})
        return
    _print_changes(about, changes)
    if rows:
        _print_edges(_TITLES[used], rows)
    if used != sort:
        print(f"They are sorted by ratio: this model has nothing to tell {sort} by.")
    name = facts.dataset or "GRAPH"
    print_text(f"To find out which edges are wrong: gsebo suspects {name}")


class ModelEdges(NamedTuple):
    """The edges of a model's graph, in memory or on disk."""

    pieces: Callable[[], Iterable[EdgePiece]]  # Goes through them.
    labels: NDArray[Any] | None  # Class of each node, negative if unknown.
    learned: bool
    num_nodes: int
    added: int = 0  # How many edges the method has added.
    ids: Array | None = None  # What the user calls each node,
    class_names: Sequence[str] | None = None  # and each class, if not by number.
    fitted: GraphClassifier | None = None  # Where its predictions are at hand.

    @classmethod
    def of(
        cls, fitted: GraphClassifier, graph: str | None = None, model: Path = Path()
    ) -> "ModelEdges":
        """Those of a model, which was perhaps fitted on the folder of a graph."""
        if fitted.model_.is_held:
            shown = as_graph(fitted.graph_)
            index = shown.edge_index.cpu()
            piece = EdgePiece(index, fitted.initial_strength_, fitted.strength_)
            return cls(
                lambda: [piece],
                shown.y.cpu().numpy(),
                fitted.model_.learned,
                len(fitted.probability_),
                int(fitted.new_edge_index_.shape[1]),
                sized(shown).ids,
                fitted.model_.class_names,
                fitted,
            )
        if graph is None or not is_graph_folder(graph):
            raise InvalidInput(
                f"{model} was fitted on a graph folder, and {graph or 'nothing'} is "
                "none; expected that folder as --graph."
            )
        folder = GraphFolder.open(graph)
        arrays = folder.arrays()
        return cls(
            lambda: fitted.model_.edge_strengths(*fitted.model_.in_chunks(folder)),
            arrays.y,
            True,
            arrays.num_nodes,
            ids=folder.ids(),
            class_names=folder.manifest.classes,
        )

    @property
    def names(self) -> NodeNames | None:
        """What nodes and their classes are called, where those are at hand."""
        return None if self.fitted is None else NodeNames.of(self.fitted)

    def tables(self) -> Iterable[EdgeTable]:
        """All edges in their order, in pieces."""
        if self.fitted is not None:
            return [EdgeTable.of(self.fitted)]
        return (EdgeTable.of_piece(piece) for piece in self.pieces())

    def first(self, sort: Sort, top: int) -> tuple[EdgeTable | None, Sort]:
        """The first edges in an order, and which order that is.

        One row for both directions of an edge; a row for each where the graph is on
        disk, because they lie far from each other.
        """
        kept: EdgeTable | None = None
        for table in self.tables():
            table = table if self.fitted is None else table.undirected()
            table, sort = table.without_loops(), table.possible(sort)
            kept = table if kept is None else kept.with_rows(table)
            kept = kept.take(kept.order(sort)[:top])
        return kept, sort

    def rows(self, table: EdgeTable | None) -> list[dict[str, Any]]:
        """Edges as ``--json`` tells them; what is not known is ``None``."""
        if table is None:
            return []
        ends = table.source, table.target
        classes = _classes(self.labels, torch.from_numpy(np.stack(ends))).numpy()
        names, ids, known = self.names, self.ids, classes >= 0
        relation: dict[str, Array] = {}
        if names is not None and names.relations is not None:
            relation["relation"] = names.relations[table.relation]
        columns: dict[str, Array] = {
            "source": table.source if ids is None else ids[table.source],
            "target": table.target if ids is None else ids[table.target],
            **relation,
            "source_class": classes[0] if names is None else names.classes[ends[0]],
            "target_class": classes[1] if names is None else names.classes[ends[1]],
            "source_known": known[0],
            "target_known": known[1],
            "agreement": table.agreement,
            "weight": table.weight,
            "ratio": table.ratio,
            "start": table.start,
            "strength": table.strength,
        }
        listed = {name: column.tolist() for name, column in columns.items()}
        for one in () if names is not None else ("source", "target"):
            numbers = listed[f"{one}_class"]
            listed[f"{one}_class"] = [self._class(number) for number in numbers]
        rows = zip(*listed.values(), strict=True)
        return [dict(zip(listed, map(_or_none, row), strict=True)) for row in rows]

    def summary(self, top: int) -> dict[str, Any]:
        """What happened to them, as ``--json`` says it; the most changed are named."""
        layers: list[_Layer] = []
        count, per_layer = 0, False
        for piece in self.pieces():
            per_layer = piece.strength.dim() == 2
            rows = piece.strength if per_layer else piece.strength.unsqueeze(0)
            layers = layers or [_Layer(top) for _ in rows]
            classes = _classes(self.labels, piece.edge_index)
            for layer, row in zip(layers, rows, strict=True):
                layer.add(piece.edge_index, piece.start, row, classes)
            count += piece.edge_index.shape[1]
        return {
            "learned": self.learned,
            "num_nodes": self.num_nodes,
            "num_edges": count,
            # One if all layers share the strengths.
            "layers": [
                {"layer": number if per_layer else None, **self._named(layer.changes())}
                for number, layer in enumerate(layers)
            ],
        }

    def _named(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The same with nodes and classes as the user calls them."""
        for edge in changes["most_changed"]:
            for end in ("source", "target"):
                if self.ids is not None:
                    edge[end] = self.ids[edge[end]].item()
                edge[f"{end}_class"] = self._class(edge[f"{end}_class"])
        return changes

    def _class(self, number: int | None) -> int | str | None:
        """What the user calls a class, ``None`` for one that is not known."""
        if number is None or number < 0:
            return None
        # A class may have a label that no name was given for.
        names = self.class_names or ()
        return names[number] if number < len(names) else number


def _or_none(value: Any) -> Any:
    """A value, or nothing for what is not a number, which differs from itself."""
    return value if value == value else None


def unchanged_everywhere(changes: dict[str, Any]) -> bool:
    """Whether every edge counts as at the start."""
    edges = changes["num_edges"]
    return all(layer["unchanged"]["count"] == edges for layer in changes["layers"])


def _classes(labels: NDArray[Any] | None, edges: Tensor) -> Tensor:
    """Classes at both ends, ``[2, edges]``, -1 where unknown."""
    if labels is None:
        return torch.full_like(edges, -1)
    nodes, places = torch.unique(edges, return_inverse=True)
    return torch.from_numpy(np.asarray(labels[nodes.numpy()], np.int64))[places]


class _Layer:
    """Gathers what happened to the strengths of a layer, some edges at a time."""

    def __init__(self, top: int) -> None:
        self._top = top
        # Of each group the number of edges, of those with a ratio, and the ratios' sum.
        self._groups: dict[str, list[Any]] = defaultdict(lambda: [0, 0, 0.0])
        self._bars = [0] * (len(_BINS) - 1)
        self._most: list[dict[str, Any]] = []

    def add(
        self, edges: Tensor, start: Tensor, strength: Tensor, classes: Tensor
    ) -> None:
        ratio = ratios(start, strength)
        finite = ~ratio.isnan()
        same = torch.isclose(strength, start, rtol=_TOLERANCE, atol=0.0)
        first, second = classes
        pair_known = (first >= 0) & (second >= 0) & (edges[0] != edges[1])
        members = {
            "weakened": ~same & (strength < start),
            "unchanged": same,
            "strengthened": ~same & (strength > start),
            "within_class": pair_known & (first == second),
            "between_classes": pair_known & (first != second),
        }
        for name, chosen in members.items():
            known, group = ratio[chosen & finite], self._groups[name]
            group[0] += int(chosen.sum())
            group[1] += known.numel()
            group[2] += float(known.sum())
        values = ratio[finite]
        for place, (low, high) in enumerate(pairwise(_BINS)):
            self._bars[place] += int(((values >= low) & (values < high)).sum())
        size = (strength - start).abs()
        order = torch.argsort(size, descending=True, stable=True)
        first_ones = order[~same[order]][: self._top].tolist()
        found = [_edge(edges, start, strength, classes, one) for one in first_ones]
        # Of edges that changed by the same amount, the first stays the first.
        every = sorted([*self._most, *found], key=_change, reverse=True)
        self._most = every[: self._top]

    def changes(self) -> dict[str, Any]:
        groups = {
            name: {"count": count, "mean_ratio": total / known if known else None}
            for name, (count, known, total) in self._groups.items()
        }
        histogram = [
            {"low": low, "high": None if high == _BINS[-1] else high, "count": count}
            for (low, high), count in zip(pairwise(_BINS), self._bars, strict=True)
        ]
        return {**groups, "histogram": histogram, "most_changed": self._most}


def ratios(start: Tensor, strength: Tensor) -> Tensor:
    """Strength / start in float64, NaN where the start is 0, ``[..., edges]``."""
    start = start.double()
    return torch.where(start > 0, strength.double() / start, torch.nan)


def _edge(
    edges: Tensor, start: Tensor, strength: Tensor, classes: Tensor, number: int
) -> dict[str, Any]:
    """One edge, without a ratio where the start is 0, or a class that is unknown."""
    source, target = edges[:, number].tolist()
    before, after = float(start[number]), float(strength[number])
    known = [each if each >= 0 else None for each in classes[:, number].tolist()]
    return {
        "source": source,
        "target": target,
        "start": before,
        "strength": after,
        "ratio": after / before if before > 0 else None,
        "source_class": known[0],
        "target_class": known[1],
    }


def _change(edge: dict[str, Any]) -> float:
    return abs(float(edge["strength"]) - float(edge["start"]))


def _print_changes(about: dict[str, Any], changes: dict[str, Any]) -> None:
    graph = about["dataset"] or "an unnamed graph"
    print_table(
        f"{about['method']} with {about['backbone']} on {graph}",
        ("", ""),
        [
            ("graph", f"{changes['num_nodes']} nodes, {changes['num_edges']} edges"),
            ("seed", about["seed"]),
            ("best step", about["best_step"]),
            ("edges added", about["added_edges"]),
        ],
    )
    if not changes["learned"]:
        print("Nothing was learned about the edges: each counts as at the start.")
        return
    if unchanged_everywhere(changes) and not about["added_edges"]:
        print("No edge changed: the best step came before the first change.")
        return
    for layer in changes["layers"]:
        _print_layer(layer)


def _print_layer(layer: dict[str, Any]) -> None:
    where = "" if layer["layer"] is None else f", layer {layer['layer']}"
    print_table(
        f"Edges{where}",
        ("", ">edges", ">mean strength / start"),
        (
            (words, layer[key]["count"], _rounded(layer[key]["mean_ratio"], 4))
            for key, words in _GROUPS.items()
        ),
    )
    bars = layer["histogram"]
    largest = max(bar["count"] for bar in bars) or 1
    print_table(
        f"Strength / start{where}",
        (">from", ">below", ">edges", ""),
        (
            # So that none but zero is invisible.
            (low, high, count, "#" * -(-_BAR_WIDTH * count // largest))
            for low, high, count in (bar.values() for bar in bars)
        ),
    )


def _print_edges(title: str, rows: list[dict[str, Any]]) -> None:
    weighed = any(row["weight"] is not None for row in rows)
    typed = ["relation"] if "relation" in rows[0] else []
    print_table(
        title,
        (
            *(">source", ">target", *typed, "classes", ">agreement"),
            *(">weight" if weighed else ">ratio", ">start", ">strength"),
        ),
        (
            (
                row["source"],
                row["target"],
                *(row[name] for name in typed),
                f"{_class(row, 'source')} - {_class(row, 'target')}",
                _rounded(row["agreement"], 3),
                _rounded(row["weight" if weighed else "ratio"], 3),
                _rounded(row["start"], 4),
                _rounded(row["strength"], 4),
            )
            for row in rows
        ),
    )
    if not all(row["source_known"] and row["target_known"] for row in rows):
        print("A class with a question mark is predicted, or not known.")


def _rounded(number: float | None, digits: int) -> str | None:
    return None if number is None else f"{number:.{digits}f}"


def _class(row: dict[str, Any], end: str) -> str:
    found, known = row[f"{end}_class"], row[f"{end}_known"]
    return f"{'' if found is None else found}{'' if known else '?'}"
