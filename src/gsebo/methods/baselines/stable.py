"""STABLE: representations that learned without labels say which edges to trust.

One layer encodes the nodes, of which only those edges are seen whose ends are alike:

    H = PReLU(Â X W + b),   Â = D^-1/2 (A' + β I) D^-1/2

It learns to tell nodes from nodes with the features of others, given a summary of a
view of the graph into which some of the hidden edges came back (deep graph infomax,
Veličković et al., 2019). With H~ made of shuffled rows of X, views v and summaries
s_v = sigmoid(mean_i h_i^v), the loss is the cross-entropy of the scores

    h · M Σ_v s_v + c      to 1 for the rows h of H, to 0 for those of H~

Edges of the given graph whose ends have different representations go, and every node
hears of those that are most similar to it. A GCN classifies the representations:

    s_ij = (d_i d_j)^-1/2,  or  d_j^p / Σ_k d_k^p  over the neighbors k of i

so that for p > 0 many neighbors make a neighbor more credible: who attacks a graph
mostly joins nodes that have few.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, NamedTuple, final

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import logsigmoid, prelu

from gsebo.bilevel import Tree, make_optimizer
from gsebo.files import Count, Share
from gsebo.graph import Propagation, Topology
from gsebo.memory import require_memory
from gsebo.methods.baselines.gaug.gaug_m import scaled_rows
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of, row_blocks
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    JointBaseline,
    both_ways,
    minimise,
    new_network,
    weights_of,
)
from gsebo.methods.defences.gcn_jaccard import edge_similarity
from gsebo.methods.parameters import CountOrZero, Rate, StepsOrZero
from gsebo.nn.base import (
    SYMMETRIC,
    Features,
    LayerStrengths,
    SizedBackbone,
    glorot,
    require_counts,
    strength_at,
    symmetric_normalisation,
)
from gsebo.nn.gcn import GCN, GCNLayer
from gsebo.sparse import Noise, Pattern, edge_softmax, sddmm, spmm, uniform
from gsebo.sparse.operators import unit_rows
from gsebo.training import Member, Task

_VIEWS = 2
_CLASSIFIER = "classifier."
_SLOPE = 0.25
_ORDER_SITE, _VIEW_SITE, _SCORE_SITE = 1000, 1001, 1100
# The power with which the propagation is symmetric, as in a GCN.
_SYMMETRIC_POWER = -0.5
# Similarities that are held together.
_BLOCK = 1 << 22
# Matrices [nodes, embedding channels] alive at once while the encoder learns.
_MATRICES = 16
_Cosine = Annotated[float, Meta(ge=-1, le=1)]
_Power = Annotated[float, Meta(ge=-10, le=10)]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class StableNet(SizedBackbone):
    """An encoder of one layer, and a GCN that classifies what it gives.

    The strengths of the encoder are those of layer 0, those of the GCN follow.

    Args:
        embedding_channels: Width of the representations.
    """

    normalisation = SYMMETRIC
    embedding_channels: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(embedding_channels=self.embedding_channels)
        self.num_propagations = self.num_layers + 1
        self.encoder = GCNLayer(self.in_channels, self.embedding_channels)
        self.slope = nn.Parameter(torch.full((1,), _SLOPE))
        # The authors drop nothing of the representations.
        self.classifier = GCN(
            self.embedding_channels,
            self.hidden_channels,
            self.out_channels,
            num_layers=self.num_layers,
            dropout=self.dropout,
            input_dropout=False,
        )

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        own = strength_at(strengths, 0, features)
        embedding = self.embedded(features, Propagation(pattern, own))
        later = partial(_behind, strengths)
        logits: Tensor = self.classifier(embedding, pattern, later, noise)
        return logits

    def embedded(self, features: Features, graph: Propagation) -> Tensor:
        """Representations ``[nodes, embedding channels]``."""
        return prelu(self.encoder(features, *graph, None), self.slope)


def _behind(strengths: Tensor | LayerStrengths, number: int, h: Features) -> Tensor:
    """Strengths of a layer of the classifier, which stands behind the encoder."""
    return strength_at(strengths, number + 1, h)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class STABLE(JointBaseline):
    """A GCN on a graph that unsupervised representations refine (Li et al., KDD 2022).

    An encoder learns without labels on the graph without its least likely edges; its
    representations say which edges of the given graph go and which come, and a GCN of
    its own is trained on them and on the refined graph. It reads a directed graph as an
    undirected one; new edges go to the node that found them only. The defaults are the
    authors' for Cora as it is. (For Citeseer: ``num_neighbors`` 3. Where Metattack has
    changed a fifth of the edges: of Cora ``similarity_threshold`` 0.03,
    ``cosine_threshold`` 0.25, ``num_neighbors`` 7 and ``degree_power`` 0.6; of
    Citeseer 0.03, 0.1, 5 and 0.1.)

    Args:
        backbone: ``"stable"``.
        similarity_threshold: Edges between nodes whose features are less similar are
            hidden from the encoder: by the Jaccard similarity of zeros and ones, by the
            cosine of others.
        recovered_share: How many of those come back in each of the two views.
        loop_weight: β, the weight of each node's own features in the encoder.
        pretrain_epochs: Steps of the encoder at most.
        pretrain_patience: It ends after so many steps without a smaller loss.
        pretrain_lr: Its learning rate, of Adam.
        cosine_threshold: Edges go whose representations have no larger cosine.
        num_neighbors: How many of the most similar nodes each node hears of, among
            those that have at least two edges left. As in the authors' code a node
            that has so many is its own first.
        degree_power: p: neighbors count by this power of their degree; -0.5 is the
            symmetric propagation of a GCN.
    """

    uses_edge_weight: ClassVar[bool] = False
    supported_backbones: ClassVar[tuple[str, ...]] = ("stable",)

    backbone: str | type | nn.Module = field(default="stable", kw_only=False)
    similarity_threshold: _Cosine = 0.0
    recovered_share: Share = 0.2
    loop_weight: Rate = 2.0
    pretrain_epochs: StepsOrZero = 10000
    pretrain_patience: Count = 20
    pretrain_lr: Rate = 1e-3
    cosine_threshold: _Cosine = 0.1
    num_neighbors: CountOrZero = 1
    degree_power: _Power = -0.5

    def _problem(self, task: Task) -> "StableProblem":
        return StableProblem(task, self)


def summary_scores(
    positive: Tensor, negative: Tensor, views: list[Tensor], scorer: Tree
) -> Tensor:
    """Scores of true and of shuffled nodes by all summaries, ``[2, nodes]``."""
    summary = torch.stack([h.mean(0).sigmoid() for h in views]).sum(0)
    direction = scorer["bilinear"] @ summary
    offset = len(views) * scorer["bias"]
    return torch.stack([positive @ direction, negative @ direction]) + offset


def contrastive_loss(scores: Tensor) -> Tensor:
    """Mean cross-entropy of scores ``[2, nodes]`` to one and to zero."""
    return -(logsigmoid(scores[0]).mean() + logsigmoid(-scores[1]).mean()) / 2


def most_similar(embedding: Tensor, candidate: Tensor, count: int) -> Tensor:
    """Edges from the ``count`` candidates with the largest cosines to each node.

    The candidates are a bool ``[nodes]``; a node that is one counts as its own, of
    equals the smaller number is ahead. Edges ``[2, edges]`` without loops, to the node
    that found them. Memory is O(block + nodes · count).
    """
    unit = _unit(embedding)
    chosen = candidate.nonzero().squeeze(-1)
    count = min(count, chosen.numel())
    others, found = unit[chosen], [chosen.new_empty(2, 0)]
    if count == 0:
        return found[0]
    for start, stop in row_blocks(embedding.shape[0], _BLOCK):
        cosine = unit[start:stop] @ others.mT
        least = cosine.topk(count, dim=-1).values[:, -1:]
        # Which of several equal numbers ``topk`` picks is nobody's promise.
        above, level = cosine > least, cosine == least
        room = count - above.sum(-1, keepdim=True)
        row, place = (above | (level & (level.cumsum(-1) <= room))).nonzero().unbind(-1)
        found.append(torch.stack([chosen[place], row + start]))
    edges = torch.cat(found, dim=1)
    return edges[:, edges[0] != edges[1]]


def _unit(embedding: Tensor) -> Tensor:
    unit = unit_rows(embedding)
    assert isinstance(unit, Tensor)
    return unit


def degree_propagation(pattern: Pattern, power: float, dtype: torch.dtype) -> Tensor:
    """Strengths by a power of the degrees, ``[entries]``; see above.

    A degree is the number of entries of a row, its loop included.
    """
    if power == _SYMMETRIC_POWER:
        return symmetric_normalisation(pattern, dtype)
    # By logarithms: a power of a large degree may be beyond single precision.
    score = pattern.row_counts.clamp(min=1).double().log() * power
    return edge_softmax(pattern, score[pattern.column_of_entry]).to(dtype)


class RefinedGraph(NamedTuple):
    """What an encoder leaves behind."""

    embedding: Tensor  # [nodes, embedding channels]
    seen: Propagation  # What the encoder runs on.
    refined: Propagation  # What the classifier runs on.


@final
class StableProblem(BaselineProblem[STABLE]):
    """Training loss of the classifier on the refined graph; the encoder is fixed."""

    def __init__(self, task: Task, method: STABLE) -> None:
        super().__init__(task, method)
        assert isinstance(task.backbone, StableNet)
        self.net = task.backbone
        numbers = _MATRICES * task.num_nodes * self.net.embedding_channels
        require_memory(
            numbers * task.dtype.itemsize,
            task.device,
            what=f"an encoder of {task.num_nodes} nodes",
            instead="a smaller graph or fewer embedding_channels",
        )
        self.found = self._refined()
        # Only what comes after the encoder is trained from here on.
        self.net.encoder.requires_grad_(False)
        self.net.slope.requires_grad_(False)

    def initial_outer(self) -> Tree:
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        logits = self._logits(weights, Noise(self.task.seed, step))
        return self.task.loss_of(logits) + self.task.penalty(weights)

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """What the member predicts, without running the encoder again."""
        return self._logits(weights, None)

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        """One graph of the edges of both, with a strength for each layer."""
        seen, refined = self.found.seen, self.found.refined
        entries = [
            torch.stack([graph.pattern.column_of_entry, graph.pattern.row_of_entry])
            for graph in (seen, refined)
        ]
        union = self._laid_out(torch.cat(entries, dim=1))
        first, later = (torch.cat(graph.at(union.graph)) for graph in (seen, refined))
        layers = [first, *[later] * self.net.num_layers]
        return [Member(Propagation(union.pattern, torch.stack(layers)))]

    def _logits(self, weights: Tree, noise: Noise | None) -> Tensor:
        named = self.task.named_weights(weights).items()
        own = {name.removeprefix(_CLASSIFIER): each for name, each in named}
        inputs = (self.found.embedding, *self.found.refined, noise)
        logits: Tensor = functional_call(self.net.classifier, own, inputs)
        return logits

    def _laid_out(self, edge_index: Tensor) -> Topology:
        size, device = self.task.num_nodes, self.task.device
        return Topology.from_edges(edge_index, size, self_loops=True, device=device)

    def _refined(self) -> RefinedGraph:
        """Train the encoder, and refine the given graph by what it says."""
        task, method = self.task, self.method
        size = task.num_nodes
        given = task.graph.graph.edge_index.to(task.device)
        pairs = nodes_of(linked_pairs(given, size), size)
        # Zeros and ones that were divided by the sum of their row are such again.
        rows = scaled_rows(task.features, "max")
        alike = edge_similarity(rows, pairs).to(task.device)
        hidden = alike < method.similarity_threshold
        seen = self._encoding(pairs[:, ~hidden])
        self._train_encoder(seen, self._views(seen, pairs, hidden))
        with torch.no_grad():
            embedding = self.net.embedded(task.features, seen)
            unit = _unit(embedding)
            linked = Pattern.from_positions(pairs[0], pairs[1], size)
            cosine = sddmm(linked, unit, unit)
            kept = pairs[:, cosine > method.cosine_threshold]
            degree = kept.flatten().bincount(minlength=size)
            new = most_similar(embedding, degree > 1, method.num_neighbors)
            edges = torch.cat([both_ways(kept), new], dim=1)
            pattern = self._laid_out(edges).pattern
            power, dtype = method.degree_power, task.dtype
            strengths = degree_propagation(pattern, power, dtype)
            return RefinedGraph(embedding, seen, Propagation(pattern, strengths))

    def _encoding(self, pairs: Tensor) -> Propagation:
        """Â of some pairs ``[2, pairs]``, each an edge both ways."""
        pattern = self._laid_out(both_ways(pairs)).pattern
        weights = torch.ones(
            pattern.num_entries, dtype=self.task.dtype, device=self.task.device
        )
        loop = pattern.row_of_entry == pattern.column_of_entry
        return self.weighted(
            pattern, weights.masked_fill(loop, self.method.loop_weight)
        )

    def _views(
        self, seen: Propagation, pairs: Tensor, hidden: Tensor
    ) -> list[Propagation]:
        """The graph of the encoder with some of the hidden pairs, for each view."""
        missing = hidden.nonzero().squeeze(-1)
        back = int(round(missing.numel() * self.method.recovered_share, 6))
        if back == 0:
            return [seen] * _VIEWS
        views, noise = [], Noise(self.task.seed, 0)
        like = torch.empty((), dtype=torch.float64, device=self.task.device)
        for number in range(_VIEWS):
            drawn = uniform((missing.numel(),), noise, _VIEW_SITE + number, like)
            shown = ~hidden
            shown[missing[drawn.argsort(stable=True)[:back]]] = True
            views.append(self._encoding(pairs[:, shown]))
        return views

    def _train_encoder(self, seen: Propagation, views: list[Propagation]) -> None:
        """Minimise the contrastive loss, and leave the weights in the network."""
        task, method, channels = self.task, self.method, self.net.embedding_channels
        scorer = new_network(task, _SCORE_SITE, _Scorer, channels)
        named = weights_of(self.net)
        encoder = {k: v for k, v in named.items() if not k.startswith(_CLASSIFIER)}
        own = {f"scorer.{name}": each for name, each in weights_of(scorer).items()}

        def loss_of(weights: Tree, step: int) -> Tensor:
            return contrastive_loss(
                self.contrast(weights, seen, views, Noise(task.seed, step))
            )

        found = minimise(
            loss_of,
            encoder | own,
            make_optimizer("adam", method.pretrain_lr),
            method.pretrain_epochs,
            patience=method.pretrain_patience,
        )
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name in encoder:
                    parameter.copy_(found[name])

    def contrast(
        self, weights: Tree, seen: Propagation, views: list[Propagation], noise: Noise
    ) -> Tensor:
        """Scores of true and of shuffled nodes in a step, ``[2, nodes]``."""
        size = self.task.num_nodes
        like = torch.empty((), dtype=torch.float64, device=self.task.device)
        order = uniform((size,), noise, _ORDER_SITE, like).argsort(stable=True)
        # Shuffled features are shuffled products: those with W are made once.
        sent = self.task.features @ weights["encoder.weight"]

        def encoded(graph: Propagation, sent: Tensor) -> Tensor:
            heard = spmm(*graph, sent) + weights["encoder.bias"]
            return prelu(heard, weights["slope"])

        positive = encoded(seen, sent)
        shown = [positive if each is seen else encoded(each, sent) for each in views]
        scorer = {name: weights[f"scorer.{name}"] for name in ("bilinear", "bias")}
        return summary_scores(positive, encoded(seen, sent[order]), shown, scorer)


@final
class _Scorer(nn.Module):
    """M and c of the scores."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bilinear = glorot(channels, channels)
        self.bias = nn.Parameter(torch.zeros(()))
