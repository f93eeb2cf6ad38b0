"""HGSL: every relation of a graph with types gets a graph of its own to learn.

Two nodes are as similar as the mean of cosines under learned weights of the channels,
and what is below a threshold ε counts for nothing:

    ψ(a, b) = (1/K) Σ_k cos(w_k ⊙ a, w_k ⊙ b),   0 where less than ε

Nodes of different types are compared by f' = ReLU(f W_type + b_type). A relation with
the adjacency A_r, heads by tails, has these channels:

    feature similarity    S_FS = ψ(f'_i, f'_j)
    head propagation      S_FH A_r,   S_FH = ψ of the raw features among the heads
    tail propagation      A_r S_FT,   S_FT = ψ of the raw features among the tails
    metapath              S_M = ψ(z_i, z_j) for each of the given embeddings z

Ψ is channel attention: of graphs whose rows are divided by their sums, it is the sum
weighed by a softmax. The graph of the relation, and that of the GCN over all nodes, are

    A'_r = Ψ[Ψ[S_FS, S_FH A_r, A_r S_FT], Ψ[S_M, ...], A_r],   A = Σ_r (A'_r + A'_rᵀ)

No A'_r is ever put together while training. Attention and sums of rows only give each
channel a number per head, so that A x is a sum of products of x with the graphs of
similarities and with A_r, which are kept apart: a product with A_r stays one of few
entries. Where a threshold leaves few pairs, only these are searched for, in blocks, and
kept; where it leaves many, a matrix heads by tails costs less than its entries would.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, final

import torch
from msgspec import Meta
from torch import Tensor

from gsebo.bilevel import Tree, make_optimizer
from gsebo.data.relations import metapath_embeddings
from gsebo.errors import InvalidInput, escaped
from gsebo.files import Count
from gsebo.graph import Graph, Propagation
from gsebo.graph.hetero import METAPATH
from gsebo.memory import require_memory
from gsebo.methods.baselines.hgsl.mixture import (
    NUMBERS_AT_ONCE,
    Channel,
    Matrix,
    MixedGraph,
    Mixture,
    Relation,
    SparseMatrix,
    attended,
    compared,
    num_similar_pairs,
    product,
    safe_inverse,
    similar_pairs,
)
from gsebo.methods.baselines.pairs import dense_features
from gsebo.methods.baselines.shared import BaselineProblem, LastOf
from gsebo.methods.fitting import Outcome
from gsebo.methods.parameters import Rate, ShareBelowOne, SideWidth, Width
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier
from gsebo.nn.base import Features
from gsebo.sparse import (
    Noise,
    Pattern,
    SparseFeatures,
    dropout,
    sddmm,
    uniform,
)
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy

_FEATURES, _PROJECTED = "features", "projected"
_WEIGHTS = "weight", "bias"
_SITE = 1000
# A similarity of fewer pairs than this is cheaper by its entries than as a matrix.
_FEW = 0.05
# Matrices of all pairs that a step holds of one that is dense: measured.
_MATRICES = 6
# Of each entry: positions both ways, and its number in a step.
_BYTES_PER_ENTRY = 80
# Copies of what is compared that a step holds.
_COPIES = 6
# As little as no prediction notices is not stored.
_NEGLIGIBLE = 1e-6


@final
@dataclass(kw_only=True, eq=False, repr=False)
class HGSL(EpochClassifier):
    """Heterogeneous graph structure learning (Zhao et al., AAAI 2021).

    It is made for graphs with several types of nodes: for each relation, graphs of
    similar features, of features that are propagated and of embeddings along metapaths
    are mixed with the given one, and a GCN over all nodes is trained together with the
    mixture. Of two relations that are each other's reverse the first is read. A graph
    without types is the case of one type and one relation. There is dropout between
    layers only. The defaults are the authors' for DBLP. (For Yelp: ``sparsity`` 0.5,
    ``feature_threshold`` 0.8, ``propagation_threshold`` 0.1, ``metapath_threshold``
    0.2.)

    Embeddings of all nodes are given with the graph, under the key ``"metapath:NAME"``,
    ``[nodes, columns]``. Similarities that leave many pairs above their threshold are
    held as matrices: ``nodes of one type x nodes of the other``.

    Args:
        projection: Width in which nodes of different types are compared.
        num_heads: K, cosines that a similarity is the mean of.
        sparsity: The paper's alpha: weight of the penalty on the sum of all A'_r.
        feature_threshold: ε of S_FS.
        propagation_threshold: ε of S_FH and S_FT.
        metapath_threshold: ε of the similarities along metapaths.
        metapaths: Names of the embeddings, with commas between them, or ``"all"``.
        compat: Be the authors' program, which differs from their paper: columns are
            normalised in the place of rows, and at last those of A, without self-loops;
            the penalty is on the given graph, so that it teaches nothing; a node that
            a metapath does not reach has an embedding of equal numbers; and the edges
            of a node are first divided by the length of its row.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)
    reads_types: ClassVar[bool] = True

    hidden_channels: Width = 64
    dropout: ShareBelowOne = 0.2
    patience: Count = 80
    select_by: SelectBy = "f1_macro"
    projection: SideWidth = 16
    num_heads: Annotated[int, Meta(ge=1, le=1000)] = 2
    sparsity: Rate = 4.5
    feature_threshold: ShareBelowOne = 0.99
    propagation_threshold: ShareBelowOne = 0.99
    metapath_threshold: ShareBelowOne = 0.4
    metapaths: str = "all"
    compat: bool = False

    def _check_parameters(self) -> None:
        if not isinstance(self.metapaths, str):
            raise InvalidInput(
                f"metapaths={escaped(repr(self.metapaths), longest=80)} given; "
                "expected names with commas between them, or 'all'."
            )
        if self.backbone_options:
            raise InvalidInput(
                f"backbone_options={escaped(repr(self.backbone_options), longest=80)} "
                "given; HGSL expected None, because it has a GCN of its own."
            )

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        embeddings = chosen_embeddings(data, self.metapaths)
        return self.train_jointly(
            data,
            runs,
            lambda task, run: HGSLProblem(task, self, embeddings),
            structure_optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
        )


def chosen_embeddings(data: Graph, chosen: str) -> dict[str, Tensor]:
    """The chosen embeddings ``[nodes, columns]`` of a graph, by name."""
    found = metapath_embeddings(data)
    names = list(found)
    if chosen != "all":
        names = [each.strip() for each in chosen.split(",")]
    if unknown := [name for name in names if name not in found]:
        raise InvalidInput(
            f"metapaths={escaped(repr(chosen), longest=80)} given, and the graph has "
            f"no '{METAPATH}{escaped(unknown[0], longest=40)}'; expected 'all' or "
            f"names among: {escaped(', '.join(found), longest=80) or 'none'}."
        )
    return {name: found[name] for name in names}


def relations_of(task: Task, *, compat: bool) -> tuple[list[Tensor], list[Relation]]:
    """Nodes of each type, and the relations, each once: a reverse is read as the same.

    With ``compat`` heads and tails are exchanged, because normalised columns are the
    normalised rows of the transposed, and A has both; and edges are divided by the
    length of their row among all.
    """
    graph = task.graph.graph
    head, tail = graph.edge_index.to(task.device)
    weight = head.new_ones(len(head), dtype=task.dtype)
    if graph.weight is not None:
        weight = graph.weight.to(weight)
    kind, relation = torch.zeros_like(task.labels), torch.zeros_like(head)
    if graph.types is not None:
        kind = graph.types.node_type.to(kind)
        relation = graph.types.edge_type.to(relation)
    nodes = [
        (kind == each).nonzero().squeeze(-1) for each in range(int(kind.max()) + 1)
    ]
    place = torch.empty_like(kind)
    for own in nodes:
        place[own] = torch.arange(len(own), device=place.device)
    scale = torch.ones_like(weight)
    if compat:
        squares = weight.new_zeros(len(kind)).index_add(0, head, weight.square())
        scale = safe_inverse(squares.sqrt())[head]
    # A relation is what its edges say, whatever types it has by its name.
    keys = (relation * len(nodes) + kind[head]) * len(nodes) + kind[tail]
    found, known = list[Relation](), list[tuple[Tensor, Tensor]]()
    for key in torch.unique(keys).tolist():
        chosen = (keys == key).nonzero().squeeze(-1)
        ends, own = graph.edge_index.to(task.device)[:, chosen], weight[chosen]
        if any(_is_reverse(ends, own, *other) for other in known):
            continue
        known.append((ends, own))
        first, second = (int(kind[each[0]]) for each in ends)
        if compat:
            ends, first, second = ends.flip(0), second, first
        both = nodes[first], nodes[second]
        row, column = place[ends]
        pattern = Pattern.from_positions(row, column, *map(len, both))
        given = SparseMatrix(pattern, own * scale[chosen])
        found.append(Relation(f"relation{len(found)}", first, second, *both, given))
    return nodes, found


def _is_reverse(ends: Tensor, weight: Tensor, other: Tensor, its: Tensor) -> bool:
    """Whether these edges are others turned round; both are sorted, each once."""
    if ends.shape != other.shape:
        return False
    size = int(ends.max()) + 1
    order = (ends[0] * size + ends[1]).argsort()
    turned_order = (other[1] * size + other[0]).argsort()
    same = bool((ends[:, order] == other.flip(0)[:, turned_order]).all())
    return same and bool((weight[order] == its[turned_order]).all())


class Similarity(NamedTuple):
    """Nodes of which types are compared, by what, and the least ψ that counts."""

    head_type: int
    tail_type: int
    by: str
    threshold: float


@final
class HGSLProblem(BaselineProblem[HGSL]):
    """Training loss on the mixed graph, and the penalty on its entries.

    The outer variables are W and b of each type, and for each relation the weights w_k
    of each similarity and the scores of each attention.
    """

    dense = True

    def __init__(self, task: Task, method: HGSL, embeddings: dict[str, Tensor]) -> None:
        super().__init__(task, method)
        self._nodes, self.relations = relations_of(task, compat=method.compat)
        widths = [z.shape[1] for z in embeddings.values()]
        width = max(task.features.shape[1], *widths, 1)
        compared_at_once = 2 * method.num_heads * max(len(self.relations), 1)
        require_memory(
            compared_at_once * _COPIES * task.num_nodes * width * task.dtype.itemsize,
            task.device,
            what=f"comparing {task.num_nodes} nodes by {width} numbers each",
            instead="a smaller graph or num_heads",
        )
        self._zero = torch.zeros((), dtype=task.dtype, device=task.device)
        self._tables = {_FEATURES: self._by_type(dense_features(task.features))}
        for name, z in embeddings.items():
            given = z.to(task.device, task.dtype)
            if method.compat:
                # The authors' have no rows of zeros: all their numbers are equal.
                given = given.masked_fill((given == 0).all(-1, keepdim=True), 1)
            self._tables[METAPATH + name] = self._by_type(given)
        self._metapaths = [METAPATH + name for name in embeddings]
        self._stored = self._stored_positions()
        self.similarities = dict(self._all_similarities())
        self.few = self._of_few_pairs()
        self._patterns_of = LastOf(self._searched)
        self._members_of = LastOf(self._put_together)

    def _by_type(self, x: Tensor) -> list[Tensor]:
        return [x[nodes] for nodes in self._nodes]

    def _stored_positions(self) -> list[Pattern] | None:
        """Where sparse features, under each head, are not zero; for each type."""
        if isinstance(self.task.features, Tensor):
            return None
        heads, found = self.method.num_heads, []
        for x in self._tables[_FEATURES]:
            size, width = x.shape
            row, column = x.nonzero().unbind(1)
            columns = torch.cat([column + head * width for head in range(heads)])
            rows = row.repeat(heads)
            found.append(Pattern.from_positions(rows, columns, size, heads * width))
        return found

    def _all_similarities(self) -> Iterator[tuple[str, Similarity]]:
        method = self.method
        for name, head, tail, *_ in self.relations:
            near, far = method.propagation_threshold, method.feature_threshold
            yield f"{name}.direct", Similarity(head, tail, _PROJECTED, far)
            yield f"{name}.heads", Similarity(head, head, _FEATURES, near)
            yield f"{name}.tails", Similarity(tail, tail, _FEATURES, near)
            for path in self._metapaths:
                along = Similarity(head, tail, path, method.metapath_threshold)
                yield f"{name}.{path}", along

    def initial_outer(self) -> Tree:
        method, task = self.method, self.task
        width, scores = task.features.shape[1], self._zero.new_zeros
        # Drawn uniformly from - to + the bound.
        drawn: dict[str, tuple[tuple[int, ...], float]] = {}
        for kind in range(len(self._nodes)):
            drawn[f"weight{kind}"] = (width, method.projection), width**-0.5
            drawn[f"bias{kind}"] = (method.projection,), width**-0.5
        for name, similarity in self.similarities.items():
            channels = method.projection
            if similarity.by != _PROJECTED:
                channels = self._tables[similarity.by][0].shape[1]
            drawn[name] = (method.num_heads, channels), (6 / (1 + channels)) ** 0.5
        noise, like = Noise(task.seed, 0), self._zero
        outer = {
            name: (2 * uniform(shape, noise, place, like) - 1) * bound
            for place, (name, (shape, bound)) in enumerate(drawn.items(), start=_SITE)
        }
        for name, *_ in self.relations:
            outer[f"{name}.by_features"] = scores(3)
            if self._metapaths:
                outer[f"{name}.by_metapaths"] = scores(len(self._metapaths))
            outer[f"{name}.overall"] = scores(3 if self._metapaths else 2)
        return outer

    def _ends(
        self, outer: Tree, names: Iterable[str]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """What is compared, so that ψ are products of its rows."""
        projected = [
            (x @ outer[f"weight{kind}"] + outer[f"bias{kind}"]).relu()
            for kind, x in enumerate(self._tables[_FEATURES])
        ]
        tables, found = self._tables | {_PROJECTED: projected}, {}
        for name in names:
            head, tail, by, _ = self.similarities[name]
            left = right = compared(tables[by][head], outer[name])
            if head != tail:
                right = compared(tables[by][tail], outer[name])
            found[name] = left, right
        return found

    def _searchable(self, name: str, left: Tensor) -> Features:
        """The left side, stored sparsely where it is."""
        head, _, by, _ = self.similarities[name]
        if by != _FEATURES or self._stored is None:
            return left
        pattern = self._stored[head]
        values = left[pattern.row_of_entry, pattern.column_of_entry]
        return SparseFeatures(pattern, values)

    @torch.no_grad()
    def _of_few_pairs(self) -> set[str]:
        """Similarities that only few pairs share at first; the others are matrices."""
        few, needed, size = set[str](), 0, self.task.dtype.itemsize
        ends = self._ends(self.initial_outer(), self.similarities)
        for name, (left, right) in ends.items():
            threshold = self.similarities[name].threshold
            pairs = len(left) * len(right)
            found = num_similar_pairs(self._searchable(name, left), right, threshold)
            if found < _FEW * pairs:
                few.add(name)
            needed += min(found * _BYTES_PER_ENTRY, pairs * size * _MATRICES)
        require_memory(
            needed,
            self.task.device,
            what=f"comparing {self.task.num_nodes} nodes with these thresholds",
            instead="higher thresholds, fewer metapaths or a smaller graph",
        )
        return few

    @torch.no_grad()
    def _searched(self, outer: Tree) -> dict[str, Pattern]:
        """Where the similarities that few pairs share have entries."""
        found = {}
        for name, (left, right) in self._ends(outer, self.few).items():
            threshold = self.similarities[name].threshold
            pairs = similar_pairs(self._searchable(name, left), right, threshold)
            found[name] = Pattern.from_positions(*pairs, len(left), len(right))
        return found

    def mixed(self, outer: Tree) -> MixedGraph:
        """The graph of the GCN, differentiable."""
        patterns, graphs = self._patterns_of(outer), dict[str, Matrix]()
        for name, (left, right) in self._ends(outer, self.similarities).items():
            if name in patterns:
                found = sddmm(patterns[name], left, right)
                graphs[name] = SparseMatrix(patterns[name], found)
            else:
                found = left @ right.mT
                alike = found >= self.similarities[name].threshold
                graphs[name] = torch.where(alike, found, 0)
        ones = self._zero.new_ones(self.task.num_nodes, 1)
        parts = [(each, self.mixture(each, graphs, outer)) for each in self.relations]
        return MixedGraph(parts, ones, compat=self.method.compat)

    def mixture(
        self, relation: Relation, graphs: dict[str, Matrix], outer: Tree
    ) -> Mixture:
        """A'_r, of the graphs of similarities by name."""
        name, given = relation.name, relation.given
        heads, tails = graphs[f"{name}.heads"], graphs[f"{name}.tails"]
        ones = self._zero.new_ones(len(relation.tail), 1)
        whole = self._zero.new_ones(len(relation.head))

        def alone(*factors: Matrix) -> Mixture:
            sums = product(factors, ones).squeeze(-1)
            return Mixture([Channel(factors, whole)], sums)

        near = alone(graphs[f"{name}.direct"])
        features = [near, alone(heads, given), alone(given, tails)]
        found = [attended(features, outer[f"{name}.by_features"])]
        if self._metapaths:
            along = [alone(graphs[f"{name}.{each}"]) for each in self._metapaths]
            found.append(attended(along, outer[f"{name}.by_metapaths"]))
        return attended([*found, alone(given)], outer[f"{name}.overall"])

    def logits(self, weights: Tree, graph: MixedGraph, noise: Noise | None) -> Tensor:
        """Scores by a GCN on the graph, with dropout between layers."""
        named = self.task.named_weights(weights)

        def layer(number: int, h: Features) -> Tensor:
            weight, bias = (named[f"layers.{number}.{each}"] for each in _WEIGHTS)
            return graph @ (h @ weight) + bias

        h = layer(0, self.task.features)
        for number in range(1, self.method.num_layers):
            h = dropout(torch.relu(h), self.method.dropout, noise, 2 * number)
            h = layer(number, h)
        return h

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        graph = self.mixed(outer)
        logits = self.logits(weights, graph, Noise(self.task.seed, step))
        learned = torch.cat([leaf.flatten() for leaf in outer.values()])
        decay = learned.dot(learned) * (self.task.weight_decay / 2)
        loss = self.task.loss_of(logits) + self.task.penalty(weights) + decay
        if self.method.compat:
            return loss
        return loss + self.method.sparsity * graph.total

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        return self.logits(weights, self.mixed(outer), None)

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return self._members_of(outer)

    @torch.no_grad()
    def _put_together(self, outer: Tree) -> list[Member]:
        """The graph by its entries: products with columns of the identity."""
        graph, size = self.mixed(outer), self.task.num_nodes
        width = max(NUMBERS_AT_ONCE // size, 1)
        rows, columns, strengths = [], [], []
        for start in range(0, size, width):
            number = min(width, size - start)
            identity = self._zero.new_zeros(size, number)
            identity[start : start + number] = torch.eye(number).to(identity)
            found = graph @ identity
            row, column = (found >= _NEGLIGIBLE).nonzero().unbind(1)
            rows.append(row)
            columns.append(column + start)
            strengths.append(found[row, column])
        pattern = Pattern.from_positions(torch.cat(rows), torch.cat(columns), size)
        return [Member(Propagation(pattern, torch.cat(strengths)))]
