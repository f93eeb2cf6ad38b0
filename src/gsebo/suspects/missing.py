"""Pairs that should be joined: judged as if some of the given edges had been missing.

A tenth of the edges is hidden. Pairs that are not joined then, but are alike or have
common neighbors, are candidates, most of the hidden edges among them; what tells those
from the others tells, on the whole graph, which pairs are likely missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags

from gsebo.data.formats.folder import GraphFolder
from gsebo.data.relations import refuse_types
from gsebo.errors import InvalidInput
from gsebo.files import Count, Seed
from gsebo.graph.graph import Graph, GraphLike
from gsebo.graph.topology import canonicalise
from gsebo.methods.fitting import resolve_device
from gsebo.methods.parameters import require_declared
from gsebo.methods.run import alike_on_any_threads
from gsebo.sparse import make_features
from gsebo.structure.candidates import candidate_edges
from gsebo.suspects.detector import checked_graph
from gsebo.suspects.networks import GraphNetworks, log_agreement
from gsebo.suspects.pairs import (
    Ints,
    JoinedPairs,
    NodeFeatures,
    Numbers,
    Pairs,
    edges_of_ends,
    keys_of_ends,
)
from gsebo.suspects.reasons import shown_evidence
from gsebo.suspects.scoring import MonotoneLogistic, crossed_scores

if TYPE_CHECKING:
    import pandas

_HIDDEN = 0.1
_FEWEST_EDGES = 100
# Candidates for each node: those most alike, and those nearest by common neighbors.
_ALIKE, _NEAR = 10, 10
# Whoever has more neighbors than this introduces nobody to anybody.
_MOST_NEIGHBORS = 200
_ROWS_AT_ONCE = 2**12
# What is less than this is no reason to join two nodes.
_LIKENESS, _LIKELY = 0.1, 0.5


class MissingEdges(NamedTuple):
    """Pairs that are likely missing, the likeliest first.

    Attributes:
        table: The users' ids, score, probability, evidence and a reason of each pair.
        ends: Numbers of its nodes, ``[2, pairs]``.
        sentences: What the list says in all.
    """

    table: pandas.DataFrame
    ends: Ints
    sentences: tuple[str, ...]


def missing_edges(
    graph: GraphLike | GraphFolder,
    *,
    count: int = 1000,
    device: str = "auto",
    random_state: int = 0,
) -> MissingEdges:
    """Find pairs of nodes of a graph that should be joined and are not.

    ``probability`` is that of a pair to be an edge of a graph of which a tenth is not
    known: how often pairs of the same score were edges that had been hidden.

    Args:
        graph: With features, or labels, or neither.
        count: Rows of the table at most.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        random_state: Seed.
    """
    require_declared("count", count, Count)
    require_declared("random_state", random_state, Seed)
    data = checked_graph(graph)
    refuse_types(
        data,
        "the graph",
        "missing edges are looked for among nodes that are all of one",
        "graph.without_types()",
    )
    return _Search(data, device, random_state).run(count)


@final
class _Search:
    def __init__(self, graph: Graph, device: str, seed: int) -> None:
        self._graph, self._pairs = graph, Pairs.of(graph).ends
        if len(self._pairs) < _FEWEST_EDGES:
            raise InvalidInput(
                f"the graph joins {len(self._pairs)} pairs of nodes; expected at least "
                f"{_FEWEST_EDGES}, a tenth of which can be hidden."
            )
        self._networks = GraphNetworks(graph, str(resolve_device(device)))
        self._features = NodeFeatures(graph.x) if "x" in graph else None
        self._rng = np.random.default_rng([seed, 3])
        self._seed = int(self._rng.integers(2**31))

    @alike_on_any_threads()
    def run(self, count: int) -> MissingEdges:
        """Learn from hidden edges, then look at the whole graph."""
        from sklearn.isotonic import IsotonicRegression

        is_hidden = np.zeros(len(self._pairs), bool)
        number = round(_HIDDEN * len(self._pairs))
        is_hidden[self._rng.permutation(len(self._pairs))[:number]] = True
        seen, hidden = self._pairs[~is_hidden], self._pairs[is_hidden]
        pairs, evidence = self._candidates(seen)
        size = self._graph.num_nodes
        edge = np.isin(keys_of_ends(pairs, size), keys_of_ends(hidden, size))
        # Whoever judges some of them learns from the others, of either kind.
        if not 2 <= edge.sum() <= len(edge) - 2:
            raise InvalidInput(
                f"of {number} hidden edges {edge.sum()} are among the {len(pairs)} "
                "pairs that are alike or have common neighbors; expected at least 2 of "
                "them, and 2 other pairs."
            )
        # What speaks for an edge lowers the score: that of no edge is learned.
        other = (~edge).astype(np.float64)
        crossed, _ = crossed_scores(evidence, other, self._rng)
        model = MonotoneLogistic().fit(np.stack(list(evidence.values()), 1), other)
        chance = IsotonicRegression(increasing=False, out_of_bounds="clip")
        chance.fit(crossed, edge)
        found = int(edge[np.argsort(crossed)[:number]].sum())
        told = (
            f"Of {number:,} edges that were hidden, {int(edge.sum()):,} were among the "
            f"{len(pairs):,} pairs that were looked at, and {found:,} among the first "
            f"{number:,} of those."
        )
        return self._ranked(model, chance, count, told)

    def _ranked(
        self, model: MonotoneLogistic, chance: Any, count: int, told: str
    ) -> MissingEdges:
        import pandas

        pairs, evidence = self._candidates(self._pairs)
        score = model.score(np.stack(list(evidence.values()), 1))
        order = np.argsort(score, kind="stable")[:count]
        shown = {name: each[order] for name, each in shown_evidence(evidence).items()}
        probability = np.clip(chance.predict(score[order]), 0, 1)
        ends, ids = pairs[order].T.copy(), self._graph.ids
        table = {
            "source": ids[ends[0]],
            "target": ids[ends[1]],
            "score": -score[order],
            "probability": probability,
            **shown,
            "reason": [_reason(shown, row) for row in range(len(order))],
        }
        sentences = [told]
        for first in (100, 1000):
            if first <= len(order):
                share = probability[:first].mean() * first
                sentences.append(
                    f"Of the first {first:,} pairs, {share:.0f} would be edges if as "
                    "many were missing as were hidden."
                )
        return MissingEdges(pandas.DataFrame(table), ends, tuple(sentences))

    def _candidates(self, pairs: Ints) -> tuple[Ints, dict[str, Numbers]]:
        """Pairs that are not joined, and what is told of each."""
        size = self._graph.num_nodes
        joined = JoinedPairs(pairs, size, self._features)
        found = [_near(joined.adjacency)]
        if self._features is not None:
            found.append(self._alike(pairs))
        keys = np.unique(keys_of_ends(np.concatenate(found), size))
        keys = keys[~np.isin(keys, keys_of_ends(pairs, size))]
        chosen = np.stack([keys // size, keys % size], axis=1)
        evidence = joined.evidence(chosen, joined=False)
        if self._networks.has_labels:
            if self._networks.has_features:
                alone = self._networks.features_only(self._seed)
                evidence["features_agreement"] = log_agreement(alone, chosen)
            ones = np.ones(len(pairs))
            predicted = self._networks.on_graph(pairs, ones, self._seed)
            evidence["agreement"] = log_agreement(predicted, chosen)
        return chosen, evidence

    def _alike(self, pairs: Ints) -> Ints:
        """Pairs with the most similar features."""
        size = self._graph.num_nodes
        graph = Graph(edge_index=edges_of_ends(pairs), num_nodes=size)
        features = make_features(self._graph.x, torch.float32, "cpu")
        found = candidate_edges(features, _ALIKE, canonicalise(graph))
        nodes: Ints = found.numpy().T
        return nodes


def _near(adjacency: csr_matrix) -> Ints:
    """Of each node, those with which it shares most, few neighbors counting more."""
    degree = np.diff(adjacency.indptr)
    introduces = (degree > 1) & (degree <= _MOST_NEIGHBORS)
    weighed = adjacency @ diags(np.where(introduces, 1 / np.maximum(degree, 1), 0))
    found = [np.empty((0, 2), np.int64)]
    for begin in range(0, adjacency.shape[0], _ROWS_AT_ONCE):
        shared = (weighed[begin : begin + _ROWS_AT_ONCE] @ adjacency).tocsr()
        row = np.repeat(np.arange(shared.shape[0]), np.diff(shared.indptr))
        order = np.lexsort((shared.indices, -shared.data, row))
        rank = np.arange(len(row)) - shared.indptr[row]
        # A node shares everything with itself, and much with its neighbors.
        kept = order[rank < _NEAR + 1 + np.minimum(degree[begin + row], _NEAR)]
        ends = np.stack([begin + row[kept], shared.indices[kept]], axis=1)
        found.append(ends[ends[:, 0] != ends[:, 1]].astype(np.int64))
    return np.concatenate(found)


def _reason(shown: dict[str, Numbers], row: int) -> str:
    """What speaks for an edge, in one sentence."""
    said = []
    if count := int(shown["common_neighbors"][row]):
        said.append(f"{count} common neighbor{'s' * (count > 1)}")
    if "cosine" in shown and shown["cosine"][row] > _LIKENESS:
        said.append(f"features alike (cosine {shown['cosine'][row]:.2f})")
    if "agreement" in shown:
        share = shown["agreement"][row]
        if share > _LIKELY:
            said.append(f"of one class with probability {share:.2f}")
    text = "; ".join(said) or "little speaks for it"
    return f"{text[0].upper()}{text[1:]}."
