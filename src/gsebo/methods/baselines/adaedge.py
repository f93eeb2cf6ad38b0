"""AdaEdge: link what the network takes for one class, cut what it takes for two.

There may be millions of pairs to link and only the first few are wanted, so they are
never listed: the nodes are put in order, each node comes with its partners, and nodes
are taken until there are enough pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from gsebo.graph import Graph
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of, number_of, rewired
from gsebo.methods.fitting import Outcome
from gsebo.methods.parameters import CountOrZero, ShareBelowOne, Steps
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure

PairOrder = Literal["confidence", "rows"]
"""``"confidence"``: the surest pairs first, by the confidence of the less sure node and
then of the surer one; ``"rows"``: pairs i < j by i and then by j."""


class Belief(NamedTuple):
    """What a classifier says of every node: most likely class and its probability."""

    label: Tensor
    confidence: Tensor


def belief_of(probability: Tensor) -> Belief:
    """Return the most likely class of each node, from ``[nodes, classes]``."""
    confidence, label = probability.max(dim=-1)
    return Belief(label, confidence)


def disagreeing_pairs(
    belief: Belief, linked: Tensor, *, confidence: float, count: int, order: PairOrder
) -> Tensor:
    """Return the linked pairs of different classes, at most ``count``, in order."""
    first, second = nodes_of(linked, belief.label.numel())
    sure = belief.confidence >= confidence
    chosen = sure[first] & sure[second] & (belief.label[first] != belief.label[second])
    pairs, first, second = linked[chosen], first[chosen], second[chosen]
    if order == "confidence":
        place = _places(_surest_first(belief.confidence))
        less, more = place[first], place[second]
        key = torch.maximum(less, more) * place.numel() + torch.minimum(less, more)
        pairs = pairs[key.argsort()]
    return pairs[:count]


def agreeing_unlinked_pairs(
    belief: Belief, linked: Tensor, *, confidence: float, count: int, order: PairOrder
) -> Tensor:
    """Return the pairs of one class that are not linked, at most ``count``, in order.

    Both nodes must reach the confidence. Memory is O(count + linked + nodes).
    """
    by_rows = order == "rows"
    sure = (belief.confidence >= confidence).nonzero().squeeze(-1)
    owners = sure if by_rows else sure[_surest_first(belief.confidence[sure])]
    # The nodes class by class, in the same order inside each; a node's partners are the
    # members of its class behind it (by rows) or before it (by confidence).
    of_class = belief.label[owners]
    sorting = of_class.argsort(stable=True)
    members = owners[sorting]
    place = _places(sorting)
    size = torch.bincount(of_class, minlength=1)
    end = size.cumsum(0)[of_class]
    begin = end - size[of_class]
    begin, end = (place + 1, end) if by_rows else (begin, place)
    partners = end - begin
    free = partners - _linked_partners(belief.label, owners, linked, by_rows=by_rows)
    enough = int((free.cumsum(0) < count).sum()) + 1
    # Pair each owner with members[begin : begin + partners], one after another.
    owners, begin, partners = owners[:enough], begin[:enough], partners[:enough]
    owner = owners.repeat_interleave(partners)
    before = partners.cumsum(0) - partners
    number = torch.arange(owner.numel(), device=owners.device)
    partner = members[number + (begin - before).repeat_interleave(partners)]
    pairs = number_of(owner, partner, belief.label.numel())
    return pairs[~torch.isin(pairs, linked)][:count]


def _linked_partners(
    label: Tensor, owners: Tensor, linked: Tensor, *, by_rows: bool
) -> Tensor:
    """How many pairs of each owner with its partners are linked, ``[owners]``."""
    place = torch.full_like(label, -1)
    place[owners] = torch.arange(owners.numel(), device=label.device)
    first, second = nodes_of(linked, label.numel())
    same = (label[first] == label[second]) & (place[first] >= 0) & (place[second] >= 0)
    ends = place[first[same]], place[second[same]]
    owner = torch.minimum(*ends) if by_rows else torch.maximum(*ends)
    return torch.bincount(owner, minlength=owners.numel())


def _surest_first(confidence: Tensor) -> Tensor:
    """The order of falling confidence; of two equal ones the smaller node is ahead."""
    return confidence.argsort(descending=True, stable=True)


def _places(order: Tensor) -> Tensor:
    """Where each number is in a permutation."""
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device)
    return places


@final
@dataclass(kw_only=True, eq=False, repr=False)
class AdaEdge(EpochClassifier):
    """Training on a graph that is changed by the predictions of the last training.

    Chen et al., AAAI 2020. After each training, pairs of nodes that are surely of one
    class become edges, and edges between nodes that are surely of two classes go; then
    a fresh network is trained on the new graph, from the same seed. This goes on as
    long as the validation accuracy rises; the best network is kept with its graph.

    Pairs have no direction: in a directed graph a pair that goes loses the edges of
    both directions, a new one gets both, and all other edges stay as they are.

    Args:
        num_add: How many pairs become edges in one round at most; ``None`` means a
            tenth as many as the given graph has.
        num_remove: How many pairs cease to be edges in one round at most; ``None``
            means a tenth of those that the given graph has.
        conf_add: Probability of its class that each node of a new pair must reach.
        conf_remove: The same for each node of a pair that goes.
        order: Whether a round begins with ``"add"`` or ``"remove"``. New pairs have
            equal classes and those that go have not, so the graph is the same; it is
            there because published settings name it.
        max_rounds: Number of trainings at most.
        compat: Do as the code behind the published figures: removals too ask for
            ``conf_add``, and of too many pairs those of the first nodes are taken
            instead of the surest.
    """

    num_add: CountOrZero | None = None
    num_remove: CountOrZero | None = None
    conf_add: ShareBelowOne = 0.5
    conf_remove: ShareBelowOne = 0.5
    order: Literal["add", "remove"] = "add"
    max_rounds: Steps = 5
    compat: bool = False

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        # All seeds begin on the same graph, and each goes on with its own.
        firsts = self._trained(data, [run.stage(0) for run in runs], data.edge_index)
        pairs = zip(runs, firsts, strict=True)
        return [self._improved(data, run, first) for run, first in pairs]

    def _improved(self, data: Graph, run: Run, best: Outcome) -> Outcome:
        edges = data.edge_index.to(run.device, torch.int64)
        num_pairs = linked_pairs(edges, data.num_nodes).numel()
        for number in range(1, self.max_rounds):
            changed = self._adjusted(edges, belief_of(best.probability), num_pairs)
            if changed.shape == edges.shape and bool((changed == edges).all()):
                break
            (found,) = self._trained(data, [run.stage(number)], changed)
            if _accuracy(found) <= _accuracy(best):
                break
            best, edges = found, changed
        return best

    def _trained(
        self, data: Graph, runs: Sequence[Run], edges: Tensor
    ) -> list[Outcome]:
        return train_on_fixed_structure(
            data, runs, self.network(), self.schedule(), graph=edges
        )

    def _adjusted(self, edges: Tensor, belief: Belief, num_pairs: int) -> Tensor:
        """Put pairs in and take pairs out, ``[2, edges]``."""
        by: PairOrder = "rows" if self.compat else "confidence"
        num_nodes = belief.label.numel()
        num_add = num_pairs // 10 if self.num_add is None else self.num_add
        num_remove = num_pairs // 10 if self.num_remove is None else self.num_remove
        conf_remove = self.conf_add if self.compat else self.conf_remove
        for adds in (True, False) if self.order == "add" else (False, True):
            linked = linked_pairs(edges, num_nodes)
            added = removed = linked[:0]
            if adds:
                added = agreeing_unlinked_pairs(
                    belief, linked, confidence=self.conf_add, count=num_add, order=by
                )
            else:
                removed = disagreeing_pairs(
                    belief, linked, confidence=conf_remove, count=num_remove, order=by
                )
            edges = rewired(edges, num_nodes, added=added, removed=removed)
        return edges


def _accuracy(outcome: Outcome) -> float:
    """Validation accuracy of the step that was kept."""
    assert outcome.progress.best is not None
    return outcome.progress.best.val_accuracy
