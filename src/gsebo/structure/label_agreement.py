"""Which pairs of nodes to link or to cut, by what a classifier says of both ends.

AdaEdge (Chen et al., AAAI 2020) links nodes that are surely of one class and cuts edges
between nodes that are surely not. There may be millions of such pairs and only the
first few are wanted, so the pairs are never listed: the nodes are put in order, each
node comes with its partners, and nodes are taken until there are enough pairs.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gsebo.structure.node_pairs import nodes_of, number_of

PairOrder = Literal["confidence", "rows"]
"""``"confidence"``: the surest pairs first, by the confidence of the less sure node and
then of the surer one; ``"rows"``: pairs i < j by i and then by j."""


class Belief(NamedTuple):
    """What a classifier says of every node.

    Attributes:
        label: Most likely class, ``[nodes]``.
        confidence: Its probability, ``[nodes]``.
    """

    label: Tensor
    confidence: Tensor


def belief_of(probability: Tensor) -> Belief:
    """Return the most likely class of each node, from ``[nodes, classes]``."""
    confidence, label = probability.max(dim=-1)
    return Belief(label, confidence)


def disagreeing_pairs(
    belief: Belief, linked: Tensor, *, confidence: float, count: int, order: PairOrder
) -> Tensor:
    """Return the linked pairs of different classes, at most ``count``, in order.

    Args:
        belief: What is thought of the nodes.
        linked: Sorted pairs.
        confidence: What both nodes must reach.
        count: How many pairs are wanted at most.
        order: Which pairs come first.
    """
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

    Memory is O(count + linked + nodes).

    Args:
        belief: What is thought of the nodes.
        linked: Sorted pairs, which do not count.
        confidence: What both nodes must reach.
        count: How many pairs are wanted at most.
        order: Which pairs come first.
    """
    num_nodes = belief.label.numel()
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
    pairs = _partner_pairs(
        owners[:enough], begin[:enough], partners[:enough], members, num_nodes
    )
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


def _partner_pairs(
    owners: Tensor, begin: Tensor, partners: Tensor, members: Tensor, num_nodes: int
) -> Tensor:
    """Pair each owner with ``members[begin : begin + partners]``, one after another."""
    owner = owners.repeat_interleave(partners)
    before = partners.cumsum(0) - partners
    number = torch.arange(owner.numel(), device=owners.device)
    partner = members[number + (begin - before).repeat_interleave(partners)]
    return number_of(owner, partner, num_nodes)


def _surest_first(confidence: Tensor) -> Tensor:
    """The order of falling confidence; of two equal ones the smaller node is ahead."""
    return confidence.argsort(descending=True, stable=True)


def _places(order: Tensor) -> Tensor:
    """Where each number is in a permutation."""
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device)
    return places
