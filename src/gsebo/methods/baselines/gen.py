"""GEN: several graphs of the same nodes are noisy looks at one, with communities.

The true graph has blocks: two nodes of the communities r and s are linked with the
probability w_rs. Each of m observations shows a link with the probability a and what is
none with the probability b, so that a pair that e of them show is linked with

    q = w a^e (1 - a)^(m - e) / (w a^e (1 - a)^(m - e) + (1 - w) b^e (1 - b)^(m - e))

Given q, the likeliest parameters are shares, and given these q follows: expectation and
maximisation in turns never lower the likelihood. As q depends on nothing of a pair but
both communities and e, the pairs are counted once, by these, and nothing has the size
nodes x nodes:

    w_rs = Σ_e n_rse q_rse / Σ_e n_rse,   a = Σ n q e / (m Σ n q),   b alike with 1 - q
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor

from gsebo.files import Count
from gsebo.graph import Graph
from gsebo.memory import require_memory
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of, rewired
from gsebo.methods.fitting import Outcome, PreparedGraph
from gsebo.methods.parameters import Rate, ShareBelowOne, Steps
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.model.fitted import FittedModel
from gsebo.nn.base import Features
from gsebo.structure.candidates import nearest_neighbors
from gsebo.training.history import SelectBy

# Beyond them a rate of exactly 0 or 1 would forbid what was seen all the same.
_LEAST_RATE = 1e-9
# Far more than it takes to settle; a tolerance of 0 would never be met.
_MOST_ESTIMATES = 1000
# Six numbers of 64 bits: both ends, the pair, and what sorts and counts them.
_BYTES_PER_NEIGHBOR = 48


class Observed(NamedTuple):
    """Pairs that at least one observation shows."""

    pairs: Tensor  # Their numbers, sorted, [pairs].
    times: Tensor  # How many show each, [pairs].
    observations: int  # How many there are: m.


def observed(graphs: Sequence[Tensor], num_nodes: int) -> Observed:
    """Count in how many of the graphs, each ``[2, edges]``, a pair is linked.

    >>> one, two = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 2], [0, 1]])
    >>> observed([one, two], 3)
    Observed(pairs=tensor([1, 5]), times=tensor([2, 1]), observations=2)
    """
    shown = torch.cat([linked_pairs(edges, num_nodes) for edges in graphs])
    pairs, times = torch.unique(shown, return_counts=True)
    return Observed(pairs, times, len(graphs))


@final
class PairCounts:
    """How many pairs there are of each two communities, seen so many times.

    Attributes:
        number: n, float64 ``[blocks, m + 1]``; a block is two communities.
        block: That of each observed pair, ``[pairs]``.
    """

    def __init__(self, seen: Observed, community: Tensor, num_communities: int) -> None:
        first, second = community[nodes_of(seen.pairs, community.numel())]
        low, high = torch.minimum(first, second), torch.maximum(first, second)
        self.block = low * num_communities + high
        self.num_communities = num_communities
        kinds = seen.observations + 1
        key = self.block * kinds + seen.times
        counted = torch.bincount(key, minlength=num_communities**2 * kinds)
        size = torch.bincount(community, minlength=num_communities).double()
        # Each pair once: of two communities by the smaller, of one without loops.
        total = size.unsqueeze(1) * size
        total = total.triu(1) + (size * (size - 1) / 2).diag()
        self.number = counted.view(-1, kinds).double()
        self.number[:, 0] = total.flatten() - self.number.sum(1)
        self.times = torch.arange(kinds, dtype=torch.float64, device=self.number.device)


class EdgeModel(NamedTuple):
    """Parameters of the block model and of the observations."""

    true_rate: Tensor  # a, [].
    false_rate: Tensor  # b, [].
    density: Tensor  # w, [blocks].

    def terms(self, counts: PairCounts) -> tuple[Tensor, Tensor]:
        """Probability of what is seen with a link and without, ``[blocks, m + 1]``."""
        times, rest = counts.times, counts.times.flip(0)
        shown = self.true_rate**times * (1 - self.true_rate) ** rest
        false = self.false_rate**times * (1 - self.false_rate) ** rest
        density = self.density.unsqueeze(1)
        return density * shown, (1 - density) * false

    def linked(self, counts: PairCounts) -> Tensor:
        """q, the probability of a link by what is seen, ``[blocks, m + 1]``."""
        linked, apart = self.terms(counts)
        return linked / (linked + apart)

    def log_likelihood(self, counts: PairCounts) -> float:
        """Of all that is seen, in any order of the observations."""
        linked, apart = self.terms(counts)
        return float(torch.xlogy(counts.number, linked + apart).sum())


def maximised(counts: PairCounts, linked: Tensor) -> EdgeModel:
    """The likeliest parameters if pairs are links with probability q.

    Communities without pairs have the density 0.
    """
    times, most = counts.times, counts.times[-1]
    expected, others = counts.number * linked, counts.number * (1 - linked)
    true, false = (
        ((part * times).sum() / (most * part.sum()).clamp(min=_LEAST_RATE)).clamp(
            _LEAST_RATE, 1 - _LEAST_RATE
        )
        for part in (expected, others)
    )
    density = expected.sum(1) / counts.number.sum(1).clamp(min=1)
    return EdgeModel(true, false, density)


def estimated(counts: PairCounts, tolerance: float) -> EdgeModel:
    """Expectation and maximisation until both rates move by no more than that.

    It begins with q = e / m: that a pair is a link to the share that it is seen.
    """
    start = (counts.times / counts.times[-1]).expand_as(counts.number)
    model = maximised(counts, start)
    for _ in range(_MOST_ESTIMATES):
        before, model = model, maximised(counts, model.linked(counts))
        moved = (model.true_rate - before.true_rate).abs()
        moved = torch.maximum(moved, (model.false_rate - before.false_rate).abs())
        if float(moved) <= tolerance:
            break
    return model


def layer_outputs(model: FittedModel, features: Features) -> list[Features]:
    """What each layer of a network reads, and the logarithms of what it predicts."""
    read: list[Features] = []
    (member,) = model.members
    pattern, strengths = member.propagation

    def noted(number: int, h: Features) -> Tensor:
        read.append(h)
        return strengths

    with torch.no_grad():
        logits = model.backbone(features, pattern, noted, None)
    return [*read, logits.log_softmax(-1)]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GEN(EpochClassifier):
    """Training on the graph that several observations agree on (Wang et al., WWW 2021).

    After a training, the nearest neighbors by the features, by what each layer gives
    and by the predictions are observations of a graph whose communities are the
    predicted classes, or the known ones of training nodes. Its pairs that are likely
    enough are the next graph, on which a fresh network is trained from the same seed.
    The network with the best validation accuracy is kept with its graph. A pair that
    nothing shows is never linked. The defaults are the authors' for Cora, and 30
    trainings are theirs; where a graph leads to itself they end.

    Pairs have no direction: in a directed graph a pair that goes loses the edges of
    both directions, a new one gets both, and all other edges stay as they are.

    Args:
        num_neighbors: Neighbors of each node in an observation, by cosine.
        threshold: Pairs become edges whose probability is above it.
        tolerance: The estimate ends when both rates move by no more than this.
        observe_given: Whether the given graph is an observation too, as in the paper;
            it is none in the released code.
        keep_given: Whether given edges stay, however unlikely; ``None``: where most of
            them join nodes of one community. (The released code asks all labels for
            that, those of test nodes too.)
        max_rounds: Number of trainings at most.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    select_by: SelectBy = "first_accuracy"
    num_neighbors: Count = 9
    threshold: ShareBelowOne = 0.5
    tolerance: Rate = 0.01
    observe_given: bool = True
    keep_given: bool | None = None
    max_rounds: Steps = 30

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        found = min(self.num_neighbors, data.num_nodes - 1) * data.num_nodes
        require_memory(
            found * (self.num_layers + 1) * _BYTES_PER_NEIGHBOR,
            prepared.device,
            what=f"finding {self.num_neighbors} neighbors of {data.num_nodes} nodes",
            instead="a smaller graph or num_neighbors",
        )
        by_features = nearest_neighbors(prepared.features, self.num_neighbors)
        # All seeds begin on the same graph, and each goes on with its own.
        firsts = self._trained(data, [run.stage(0) for run in runs], data.edge_index)
        pairs = zip(runs, firsts, strict=True)
        return [self._improved(prepared, by_features, *pair) for pair in pairs]

    def _improved(
        self, prepared: PreparedGraph, by_features: Tensor, run: Run, first: Outcome
    ) -> Outcome:
        best = latest = first
        edges = prepared.data.edge_index.to(run.device, torch.int64)
        for number in range(1, self.max_rounds):
            changed = self._estimated_edges(prepared, by_features, latest)
            if changed.shape == edges.shape and bool((changed == edges).all()):
                break
            edges = changed
            (latest,) = self._trained(prepared.data, [run.stage(number)], edges)
            if _accuracy(latest) > _accuracy(best):
                best = latest
        return best

    def _trained(
        self, data: Graph, runs: Sequence[Run], edges: Tensor
    ) -> list[Outcome]:
        return train_on_fixed_structure(
            data, runs, self.network(), self.schedule(), graph=edges
        )

    def _estimated_edges(
        self, prepared: PreparedGraph, by_features: Tensor, outcome: Outcome
    ) -> Tensor:
        """The next graph, ``[2, edges]``."""
        data, size = prepared.data, prepared.graph.num_nodes
        given = data.edge_index.to(prepared.device, torch.int64)
        _, *later = layer_outputs(outcome.model, prepared.features)
        graphs = [nearest_neighbors(h, self.num_neighbors) for h in later]
        graphs = [by_features, *graphs, *[given] * self.observe_given]
        seen = observed(graphs, size)
        community = outcome.probability.argmax(-1).to(prepared.device)
        known = prepared.inner_nodes
        community[known] = prepared.labels[known]
        counts = PairCounts(seen, community, outcome.probability.shape[-1])
        likely = estimated(counts, self.tolerance).linked(counts)
        chosen = seen.pairs[likely[counts.block, seen.times] > self.threshold]
        linked = linked_pairs(given, size)
        removed = linked[~torch.isin(linked, chosen)]
        if self._keeps(community[nodes_of(linked, size)]):
            removed = linked[:0]
        added = chosen[~torch.isin(chosen, linked)]
        return rewired(given, size, added=added, removed=removed)

    def _keeps(self, communities: Tensor) -> bool:
        """Whether given edges stay, by the communities of their ends ``[2, pairs]``."""
        if self.keep_given is not None:
            return self.keep_given
        return 2 * int((communities[0] == communities[1]).sum()) > communities.shape[1]


def _accuracy(outcome: Outcome) -> float:
    """Validation accuracy of the step that was kept."""
    assert outcome.progress.best is not None
    return outcome.progress.best.val_accuracy
