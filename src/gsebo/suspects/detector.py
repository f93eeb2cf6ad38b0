"""The detector of suspicious edges, as an estimator and as one function."""

from __future__ import annotations

import copy
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import torch
from torch import Tensor

from gsebo.data.formats.folder import GraphFolder
from gsebo.data.splits import apply_split
from gsebo.data.validate import sized, validate
from gsebo.errors import InputWarning, InvalidInput
from gsebo.graph.graph import Graph, GraphLike, as_graph, given_back
from gsebo.methods.fitting import resolve_device
from gsebo.methods.parameters import (
    OptionalSeed,
    Samples,
    SklearnEstimator,
    declared_parameters,
    require_declared,
)
from gsebo.methods.run import alike_on_any_threads
from gsebo.suspects.calibration import Calibration
from gsebo.suspects.networks import GraphNetworks, known_labels
from gsebo.suspects.pairs import Ints, NodeFeatures, Numbers, Pairs
from gsebo.suspects.reasons import Reasons, shown_evidence, summary
from gsebo.suspects.rounds import PlantedRounds, Round
from gsebo.suspects.scoring import weigh_given_values

if TYPE_CHECKING:
    import pandas

_FEWEST_EDGES = 20
# Ranks at which the expected precision is told, as far as there are edges.
_RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)

Report = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and where the end is."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SuspiciousEdges(SklearnEstimator):
    """Ranks the edges of a graph by how likely each is wrong.

    Edges that are known to be wrong are planted among the given ones, everything that
    can be said of an edge is said of both (features, common neighbors, what networks
    predict of both ends, learned weights), a monotone classifier learns to tell them
    apart, and the planted ones are taken out again. Labels are those of the training
    and validation nodes, or all where the graph has no masks; no other is ever read.
    Without labels, or without features, the rest has to do.

    Args:
        rounds: How often edges are planted; scores are means.
        use_labels: Whether labels are read at all.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed; ``None`` draws one.

    Attributes:
        decision_score_: Of each edge in the order of the user's ``edge_index``,
            ``[edges]``; high is suspicious. A self-loop has the lowest score.
        probability_: That it is wrong, ``[edges]``; not a number where the graph does
            not tell, and then ``edges_`` has no such column.
        label_: 1 for edges that are more likely wrong than right, else 0.
        contamination_: Share of the edges that is expected to be wrong, likewise.
        edges_: One row for each edge, whatever its directions: the user's ids, score,
            probability, evidence, classes and one sentence of reason, the most
            suspicious first.
        ends_: Numbers of its nodes, ``[2, rows]``.
        expected_: Of the first so many rows, the share that is expected to be wrong,
            and its limits.
        sentences_: What the list says in all.
        nodes_: Id, known class, predicted class and confidence of each node.
        calibration_: What all that was said of probabilities is taken from.
    """

    rounds: Samples = 3
    use_labels: bool = True
    device: str = "auto"
    random_state: OptionalSeed = None

    def check_parameters(self) -> None:
        """Raise `InvalidInput` for a parameter that cannot be used."""
        for name, declared in declared_parameters(type(self)).items():
            require_declared(name, getattr(self, name), declared)

    @alike_on_any_threads()
    def fit(
        self, graph: GraphLike | GraphFolder, *, report: Report | None = None
    ) -> Self:
        """Rank the edges of a graph; whoever wants to know is told how far it is."""
        self.check_parameters()
        device = str(resolve_device(self.device))
        seed = self.random_state
        self.seed_ = secrets.randbits(31) if seed is None else int(seed)
        data = checked_graph(graph)
        if not self.use_labels and "y" in data:
            data = copy.copy(data)
            del data["y"]
        pairs = Pairs.of(data)
        if len(pairs) < _FEWEST_EDGES:
            raise InvalidInput(
                f"the graph joins {len(pairs)} pairs of nodes; expected at least "
                f"{_FEWEST_EDGES}, to learn what its edges have in common."
            )
        networks = GraphNetworks(data, device)
        features = NodeFeatures(data.x) if "x" in data else None
        values = given_values(data, pairs)
        weights = np.exp(values["edge_weight"]) if "edge_weight" in values else None
        types = None if data.types is None else data.types.node_type.numpy()
        planted = PlantedRounds(
            pairs.ends, weights, networks, features, self.seed_, types
        )
        found = []
        for number in range(1, self.rounds + 1):
            found.append(planted.run(number))
            if report is not None:
                report("planting and judging edges", number, self.rounds)
        self._store(data, pairs, networks, found, values)
        return self

    def fit_predict(self, graph: GraphLike | GraphFolder) -> Tensor:
        """Rank the edges of a graph and return ``label_``."""
        return self.fit(graph).label_

    def clean_graph(self, graph: GraphLike, threshold: float = 0.5) -> Any:
        """The graph of the fit without edges that are likely wrong, of the same kind.

        Args:
            graph: The one that was fitted.
            threshold: Edges whose probability to be wrong is at least this go.
        """
        if not hasattr(self, "probability_"):
            raise InvalidInput("no graph was fitted yet; expected a call of fit.")
        given = as_graph(graph)
        if given.num_edges != len(self.probability_):
            raise InvalidInput(
                f"a graph with {given.num_edges} edges given; expected the one of the "
                f"fit, which has {len(self.probability_)}."
            )
        # Not a number is not at least any threshold.
        kept, cleaned = ~(self.probability_ >= threshold), copy.copy(given)
        for name in ("edge_weight", "edge_attr", "edge_type"):
            if name in given:
                cleaned[name] = given[name][kept.to(given[name].device)]
        cleaned.edge_index = given.edge_index[:, kept.to(given.edge_index.device)]
        return given_back(cleaned, graph)

    def _store(
        self,
        graph: Graph,
        pairs: Pairs,
        networks: GraphNetworks,
        rounds: list[Round],
        values: dict[str, Numbers],
    ) -> None:
        import pandas

        evidence, parts = (
            {name: np.mean([each[name] for each in some], axis=0) for name in some[0]}
            for some in (
                [one.evidence for one in rounds],
                [one.parts for one in rounds],
            )
        )
        scores = [(one.given, one.planted) for one in rounds]
        if values:
            # How much each edge looks like planted ones: that there are any wrong ones
            # at all may not be told yet.
            wrong = 1 / (1 + np.exp(-np.mean([one for one, _ in scores], axis=0)))
            scores, added = weigh_given_values(values, wrong, scores, self.seed_)
            parts |= added
            if "edge_weight" in values:
                evidence["edge_weight"] = np.exp(values["edge_weight"])
        calibration = Calibration.of(scores)
        score = np.mean([one for one, _ in scores], axis=0)
        order = np.argsort(-score, kind="stable")
        probability = np.full(len(pairs), np.nan)
        if calibration.tells:
            probability[order] = calibration.probability
        each = [one.predicted for one in rounds if one.predicted is not None]
        predicted = np.mean(each, axis=0) if each else None
        self.nodes_ = _node_table(graph, networks, predicted)
        self.calibration_ = calibration
        self.contamination_ = calibration.share if calibration.tells else np.nan
        self.decision_score_ = pairs.to_edges(score, float(score.min()))
        self.probability_ = pairs.to_edges(probability, 0.0)
        self.label_ = (self.probability_ >= 0.5).long()
        self.ends_ = pairs.given[order].T.copy()
        self.edges_ = _edge_table(
            graph, pairs, self.nodes_, score, probability, evidence, parts
        ).iloc[order]
        self.edges_.index = pandas.RangeIndex(len(order))
        if not calibration.tells:
            self.edges_ = self.edges_.drop(columns="probability")
        self.expected_ = _expected(calibration)
        self.sentences_ = summary(calibration, _told_by(evidence))


def suspicious_edges(
    graph: GraphLike | GraphFolder,
    *,
    rounds: int = 3,
    use_labels: bool = True,
    device: str = "auto",
    random_state: int | None = 0,
) -> pandas.DataFrame:
    """One row for each edge of a graph, the most suspicious first.

    The columns are those of ``SuspiciousEdges.edges_``; ``attrs["summary"]`` has
    what the list says in all, ``attrs["expected"]`` the expected precision.

    Args:
        graph: Any graph that ``fit`` takes, with or without features and labels.
        rounds: How often false edges are planted; more is surer and takes longer.
        use_labels: Whether labels of training and validation nodes, without masks all
            labels, may be read.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU where there is one.
        random_state: Seed of everything that is drawn.
    """
    found = SuspiciousEdges(
        rounds=rounds,
        use_labels=use_labels,
        device=device,
        random_state=random_state,
    )
    table = found.fit(graph).edges_
    table.attrs["summary"] = list(found.sentences_)
    table.attrs["expected"] = found.expected_.to_dict("records")
    return table


def checked_graph(given: GraphLike | GraphFolder) -> Graph:
    """A user's graph that can be read without harm, labels and masks where it has any.

    Raises:
        InvalidInput: It cannot.
    """
    whole = given.to_data() if isinstance(given, GraphFolder) else given
    graph = as_graph(whole)
    validate(graph, labels_needed=False, features_needed=False)
    graph = sized(graph)
    if "train_mask" not in graph and "train_masks" in graph:
        warnings.warn(
            "the graph came with several splits: the labels of the first are read; "
            "gsebo.apply_split chooses another.",
            InputWarning,
            stacklevel=2,
        )
        graph = apply_split(graph, "file:0", 0)
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        if name not in graph:
            continue
        tensor = graph[name]
        shape = list(getattr(tensor, "shape", ()))
        if not isinstance(tensor, Tensor) or shape != [graph.num_nodes]:
            raise InvalidInput(
                f"{name} has shape {shape}; expected [{graph.num_nodes}], one for each "
                "node."
            )
        whole_number = not tensor.is_floating_point() and tensor.dtype != torch.bool
        if not (whole_number if name == "y" else tensor.dtype == torch.bool):
            kind = "integer classes" if name == "y" else "bool"
            raise InvalidInput(f"expected {name} as {kind}, got {tensor.dtype}.")
    return graph


def given_values(graph: Graph, pairs: Pairs) -> dict[str, Numbers]:
    """What the user gave of each edge, a mean over its mentions, by name.

    The logarithm of the weight, and each column of ``edge_attr``; what all edges share
    says nothing and is left out.
    """
    columns: dict[str, Numbers] = {}
    if "edge_weight" in graph:
        columns["edge_weight"] = graph.edge_weight.double().cpu().numpy()
    if "edge_attr" in graph:
        attributes = graph.edge_attr.double().cpu().numpy()
        attributes = attributes.reshape(len(attributes), -1)
        for number, column in enumerate(attributes.T):
            columns[f"edge_attr_{number}"] = column
    place, found = pairs.pair_of_edge, {}
    joins = place >= 0
    times = np.bincount(place[joins], minlength=len(pairs))
    for name, column in columns.items():
        mean = np.bincount(place[joins], column[joins], len(pairs)) / times
        if name == "edge_weight":
            mean = np.log(np.maximum(mean, 1e-6))
        if np.ptp(mean) > 1e-9:
            found[name] = mean
    return found


def _node_table(
    graph: Graph, networks: GraphNetworks, predicted: Any
) -> pandas.DataFrame:
    import pandas

    known = known_labels(graph)
    table: dict[str, Any] = {"id": graph.ids}
    if (known >= 0).any():
        table["label"] = np.where(known >= 0, _class_names(graph, known), None)
    if predicted is not None:
        table["predicted"] = _class_names(graph, networks.name_of(predicted))
        table["confidence"] = predicted.max(1)
    return pandas.DataFrame(table)


def _class_names(graph: Graph, classes: Ints) -> Any:
    """What the user calls some classes: by their numbers where they have no name."""
    names = graph.class_names or []
    distinct, place = np.unique(classes, return_inverse=True)
    words = [
        names[one] if 0 <= one < len(names) else str(one) for one in distinct.tolist()
    ]
    return np.array(words, dtype=object)[place]


def _edge_table(
    graph: Graph,
    pairs: Pairs,
    nodes: pandas.DataFrame,
    score: Numbers,
    probability: Numbers,
    evidence: dict[str, Numbers],
    parts: dict[str, Numbers],
) -> pandas.DataFrame:
    import pandas

    source, target = pairs.given.T
    shown, classes, known = shown_evidence(evidence), None, None
    table: dict[str, Any] = {
        "source": graph.ids[source],
        "target": graph.ids[target],
        "score": score,
        "probability": probability,
        **shown,
    }
    if "predicted" in nodes:
        named = nodes["predicted"].to_numpy(object)
        classes = np.stack([named[source], named[target]], axis=1)
        has = nodes["label"].notna().to_numpy()
        known = np.stack([has[source], has[target]], axis=1)
        table |= {"source_class": classes[:, 0], "target_class": classes[:, 1]}
    say = Reasons(shown, parts, classes, known)
    table["reason"] = [say(pair) for pair in range(len(pairs))]
    return pandas.DataFrame(table)


def _expected(calibration: Calibration) -> pandas.DataFrame:
    import pandas

    edges = len(calibration.probability) if calibration.tells else 0
    ranks = {rank * 10**power for rank in _RANKS for power in (0, 3)}
    chosen = sorted(rank for rank in ranks | {edges} if 0 < rank <= edges)
    rows = [(rank, *calibration.of_first(rank)) for rank in chosen]
    return pandas.DataFrame(rows, columns=["first", "precision", "low", "high"])


def _told_by(evidence: dict[str, Numbers]) -> str:
    """What the list rests on, in words."""
    words = ["features"] if "cosine" in evidence else []
    words.append("the graph around both ends")
    words += ["labels"] if "agreement" in evidence else []
    return "what " + (
        " and ".join(words) if len(words) < 3 else f"{words[0]}, {words[1]} and labels"
    )
