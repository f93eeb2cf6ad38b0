"""AdaEdge's pairs against a brute-force search over all of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.adaedge import (
    Belief,
    PairOrder,
    agreeing_unlinked_pairs,
    belief_of,
    disagreeing_pairs,
)
from gsebo.methods.baselines.pairs import linked_pairs

from .graphs import examples, graphs


@st.composite
def beliefs(draw: st.DrawFn, num_nodes: int) -> Belief:
    """Up to three classes and four confidences, so that many nodes are equally sure."""
    last = draw(st.integers(0, 2))
    label = st.lists(st.integers(0, last), min_size=num_nodes, max_size=num_nodes)
    steps = st.lists(st.integers(0, 3), min_size=num_nodes, max_size=num_nodes)
    confidence = 0.4 + 0.2 * torch.tensor(draw(steps), dtype=torch.float64)
    return Belief(torch.tensor(draw(label)), confidence)


def ranked(belief: Belief, pairs: list[int], order: PairOrder) -> list[int]:
    """Surest first: the less sure node decides, then the surer, then their numbers."""
    n = belief.label.numel()
    if order == "rows":
        return sorted(pairs)
    sureness = [(-float(c), node) for node, c in enumerate(belief.confidence)]
    return sorted(
        pairs, key=lambda pair: sorted((sureness[pair // n], sureness[pair % n]))[::-1]
    )


def sure_pairs(belief: Belief, confidence: float) -> list[int]:
    n = belief.label.numel()
    sure = [i for i in range(n) if float(belief.confidence[i]) >= confidence]
    return [i * n + j for i in sure for j in sure if i < j]


@examples
@given(
    graph=graphs(max_nodes=9),
    confidence=st.sampled_from([0.0, 0.5, 0.8, 0.9, 1.0]),
    count=st.integers(0, 30),
    order=st.sampled_from(["confidence", "rows"]),
    data=st.data(),
)
def test_the_pairs_are_those_of_a_search_over_all(
    graph: CanonicalGraph,
    confidence: float,
    count: int,
    order: PairOrder,
    data: st.DataObject,
) -> None:
    n = graph.num_nodes
    belief = data.draw(beliefs(n))
    linked = linked_pairs(graph.edge_index, n)
    taken = set(linked.tolist())
    label = belief.label.tolist()
    candidates = sure_pairs(belief, confidence)
    add = [p for p in candidates if label[p // n] == label[p % n] and p not in taken]
    cut = [p for p in candidates if label[p // n] != label[p % n] and p in taken]
    options = {"confidence": confidence, "count": count, "order": order}
    found = agreeing_unlinked_pairs(belief, linked, **options)
    assert found.tolist() == ranked(belief, add, order)[:count]
    found = disagreeing_pairs(belief, linked, **options)
    assert found.tolist() == ranked(belief, cut, order)[:count]


def test_few_pairs_of_many_nodes_need_little_memory() -> None:
    # All pairs of this many nodes would be 20 thousand million.
    n = 200_000
    belief = Belief(torch.zeros(n, dtype=torch.int64), torch.linspace(1, 0.6, n))
    nothing = torch.empty(0, dtype=torch.int64)
    found = agreeing_unlinked_pairs(
        belief, nothing, confidence=0.5, count=4, order="confidence"
    )
    assert found.tolist() == [1, 2, n + 2, 3]


def test_what_is_believed_is_the_most_likely_class() -> None:
    belief = belief_of(torch.tensor([[0.2, 0.8], [0.7, 0.3]]))
    assert belief.label.tolist() == [1, 0]
    torch.testing.assert_close(belief.confidence, torch.tensor([0.8, 0.7]))
