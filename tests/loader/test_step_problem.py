"""The losses of one outer step on batches, and their derivatives."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCN

from gsebo import GSEBO
from gsebo.bilevel import (
    Reverse,
    Unrolled,
    adam,
    begin,
    check_problem,
)
from gsebo.bilevel.derivatives import first_derivatives
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import ClusterSampler, NeighborSampler
from gsebo.methods import Amortised
from gsebo.methods.amortised_fit import FullBatchFit
from gsebo.methods.fitting import PreparedGraph
from gsebo.methods.run import Run
from gsebo.sparse import row_sum
from gsebo.structure.base import BatchedStructure
from gsebo.training.batches import BatchedGraph
from gsebo.training.tape_derivatives import FLAT
from loader.problems import (
    CPU,
    Summed,
    amortised,
    batched,
    data,
    edges,
    looking,
    network,
    nodes_of,
    part_of,
    random,
    seen,
    somewhere,
)

ARRAYS = GraphArrays.of(data())
TRAIN, VAL = nodes_of(ARRAYS, "train"), nodes_of(ARRAYS, "val")
STEPS = 2
Structures = Callable[[str], BatchedStructure]


def own_strengths(name: str) -> BatchedStructure:
    return edges(network(name, ARRAYS))


def per_layer(name: str) -> BatchedStructure:
    return edges(network(name, ARRAYS), layers=2, learn_self_loops=False)


def one_function(name: str) -> BatchedStructure:
    return amortised(ARRAYS)


def per_layer_function(name: str) -> BatchedStructure:
    return amortised(ARRAYS, per_layer=True, renormalise=False)


CASES = [
    ("gcn", own_strengths),
    ("sage", per_layer),
    ("gcn", one_function),
    ("sage", one_function),
    ("gat", per_layer_function),
]


def batches(name: str, structure: Structures, count: int = 1) -> BatchedGraph:
    found = structure(name)
    return batched(ARRAYS, network(name, ARRAYS), found, batches_per_step=count)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("name", "structure"), CASES)
def test_the_hypergradient_is_that_of_finite_differences(
    name: str, structure: Structures, direct: bool
) -> None:
    graph = batches(name, structure, count=2)
    plan = graph.plan(TRAIN, VAL, number=0, steps=range(STEPS))
    check_problem(
        plan.problem(looking(ARRAYS, graph.structure)),
        adam(0.05),
        graph.initial_weights(),
        somewhere(graph, plan.ids),
        STEPS,
        hypergradient=Summed(direct),
        directions=1,
        epsilon=1e-5,
    ).raise_if_worse_than(1e-6)


def test_a_pyg_model_too() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GCN(ARRAYS.num_features, 4, 2, 3, dropout=0.5)
    backbone = network(model, ARRAYS)
    graph = batched(ARRAYS, backbone, edges(backbone))
    plan = graph.plan(TRAIN, VAL, number=0, steps=range(STEPS))
    arguments = (
        plan.problem(),
        adam(0.05),
        graph.initial_weights(),
        somewhere(graph, plan.ids),
        STEPS,
    )
    check = check_problem(
        *arguments, hypergradient=Summed(), directions=1, epsilon=1e-5
    )
    check.raise_if_worse_than(1e-6)


def test_what_batches_give_by_hand_is_what_autograd_makes_of_the_losses() -> None:
    graph = batches("gcn", own_strengths, count=2)
    plan = graph.plan(TRAIN, VAL, number=4, steps=range(5, 5 + STEPS))
    outer = somewhere(graph, plan.ids)
    start = begin(adam(0.05), graph.initial_weights(), step=5)
    arguments = (adam(0.05), start, outer, STEPS)
    by_hand = Reverse().run(plan.problem(), *arguments)
    recorded = Unrolled().run(plan.problem(), *arguments)
    assert by_hand.gradient["change"].shape == (2, len(plan.ids))
    torch.testing.assert_close(
        by_hand.gradient["change"].sum(0), recorded.gradient["change"]
    )
    torch.testing.assert_close(by_hand.inner_losses, recorded.inner_losses)
    torch.testing.assert_close(by_hand.outer_loss, recorded.outer_loss)


def test_two_batches_are_the_weighted_sum_of_single_ones() -> None:
    # The last batch of an epoch has what is left.
    backbone, number = network("sage", ARRAYS), 1
    graph = batched(ARRAYS, backbone, edges(backbone), batch_size=5, batches_per_step=2)
    plan = graph.plan(TRAIN, VAL, number=0, steps=range(number, number + 1))
    outer = somewhere(graph, plan.ids)
    weights = graph.initial_weights()
    problem = plan.problem()
    sizes = [len(each.problem.inner_nodes) for each in problem.at(number)]
    assert len(sizes) == 2 and sizes[0] != sizes[1]

    def weighted(found: list[Tensor]) -> Tensor:
        counted = zip(found, sizes, strict=True)
        return sum((each * size for each, size in counted), torch.zeros(())) / sum(
            sizes
        )

    at = (weights, outer, number)
    singles = [first_derivatives(each.problem, outer) for each in problem.at(number)]
    alone = [one.inner_gradient(weights, number) for one in singles]
    gradients, loss = problem.derivatives(outer).inner_gradient(weights, number)
    torch.testing.assert_close(loss, weighted([loss for _, loss in alone]))
    torch.testing.assert_close(loss, problem.inner_loss(*at))
    torch.testing.assert_close(gradients[FLAT], weighted([g[FLAT] for g, _ in alone]))

    (in_one_step,) = problem.outer
    judged = [each.problem.outer_loss(weights, outer) for each in in_one_step]
    held = sum(len(each.problem.outer_nodes) for each in in_one_step)
    assert held != len(VAL)
    found = problem.outer_loss(weights, outer)
    torch.testing.assert_close(found, sum(judged) * len(VAL) / held)


def test_a_structure_is_judged_by_as_many_draws_as_there_are_steps() -> None:
    for count, steps, draws in ((1, 2, 2), (1, 9, 4), (2, 9, 2), (4, 9, 1)):
        graph = batches("gcn", own_strengths, count=count)
        pieces = graph.sampler.batches_in_pass(VAL)
        assert pieces == 4
        plan = graph.plan(TRAIN, VAL, number=3, steps=range(steps))
        outer = plan.problem().outer
        assert [len(in_one_step) for in_one_step in outer] == [count] * draws


@pytest.mark.parametrize("in_one_step", [False, True])
def test_all_batches_of_an_epoch_together_estimate_the_whole_outer_loss(
    in_one_step: bool,
) -> None:
    """With all edges at hand and every node drawn around once, exactly."""
    backbone = network("gcn", ARRAYS)
    everyone = NeighborSampler(num_neighbors=-1)
    pieces = -(-len(VAL) // 3)
    counts = {"batch_size": 3, "batches_per_step": pieces if in_one_step else 1}
    graph = batched(ARRAYS, backbone, edges(backbone), sampler=everyone, **counts)
    plan = graph.plan(TRAIN, VAL, number=2, steps=range(1 if in_one_step else pieces))
    weights, outer = graph.initial_weights(), somewhere(graph, plan.ids)
    whole = batched(
        ARRAYS, backbone, edges(backbone), sampler=ClusterSampler(num_parts=1)
    ).plan(TRAIN, VAL, number=0, steps=range(1))
    change = torch.zeros(len(whole.ids), dtype=torch.float64)
    change[torch.searchsorted(whole.ids, plan.ids)] = outer["change"]
    found = plan.problem().outer_loss(weights, outer)
    expected = whole.problem().outer_loss(weights, {"change": change})
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("method", "name", "direct"),
    [
        (GSEBO, "gcn", False),
        (GSEBO, "gat", True),
        (GSEBO, "sage", True),
        (Amortised, "gcn", True),
        (Amortised, "sage", False),
    ],
)
def test_a_batch_of_everything_is_the_full_problem(
    method: type, name: str, direct: bool
) -> None:
    options = {"hidden_channels": 4, "weight_decay": 1e-3, "direct_term": direct}
    model = method(name, **options)
    prepared = PreparedGraph(data(), CPU)
    if isinstance(model, GSEBO):
        full = model.make_problem(prepared, 0)
        structure: BatchedStructure = edges(full.backbone)
    else:
        run = Run(model, prepared.data, 0, CPU, None, None)
        full = FullBatchFit(model, prepared, None, run).source.base
        full = full.with_state(seen(full, ARRAYS))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            structure = type(amortised(ARRAYS))(
                model.make_structure(), ARRAYS, full.backbone.num_propagations, CPU
            )
    graph = batched(
        ARRAYS, full.backbone, structure, sampler=ClusterSampler(num_parts=1)
    )
    plan = graph.plan(TRAIN, VAL, number=0, steps=range(STEPS))
    outer = somewhere(graph, plan.ids)
    assert {name: leaf.shape for name, leaf in outer.items()} == {
        name: leaf.shape for name, leaf in full.initial_outer().items()
    }
    arguments = (adam(0.05), begin(adam(0.05), graph.initial_weights()), outer, STEPS)
    here = Reverse(direct).run(plan.problem(looking(ARRAYS, structure)), *arguments)
    there = Reverse(direct).run(full, *arguments)
    # Weights that are scaled by one on the way sum up in another order.
    rtol, atol = (0, 0) if method is GSEBO else (1e-9, 1e-12)
    losses = torch.stack([here.outer_loss, *here.inner_losses])
    expected = torch.stack([there.outer_loss, *there.inner_losses])
    torch.testing.assert_close(losses, expected, rtol=rtol, atol=atol)
    for name, leaf in there.gradient.items():
        found = here.gradient[name].squeeze(0)
        torch.testing.assert_close(found, leaf, rtol=rtol, atol=atol)


def weights_of(count: int) -> Tensor:
    return random((count,), 3).sigmoid()


@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_with_all_neighbors_at_hand_strengths_are_normalised_as_in_the_whole(
    name: str,
) -> None:
    backbone = network(name, ARRAYS)
    sampler = NeighborSampler(num_neighbors=-1)
    graph = batched(ARRAYS, backbone, edges(backbone), sampler=sampler)
    every = batched(
        ARRAYS, backbone, edges(backbone), sampler=ClusterSampler(num_parts=1)
    )
    whole = part_of(every, TRAIN, 0)
    given = weights_of(whole.graph.num_entries)
    expected = backbone.normalise(whole.graph.pattern, given)
    assert torch.equal(whole.normalise(whole.graph.pattern, given), expected)
    for number in range(4):
        part = part_of(graph, TRAIN, number)
        found = part.normalise(part.graph.pattern, given[part.entries])
        rows = part.graph.pattern.row_of_entry
        at_seeds = torch.isin(rows, part.seeds)
        assert at_seeds.any() and part.nodes.numel() < ARRAYS.num_nodes
        torch.testing.assert_close(
            found[at_seeds], expected[part.entries[at_seeds]], rtol=1e-6, atol=0
        )


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_what_a_node_receives_is_right_on_average(name: str) -> None:
    """Scaled strengths of the edges drawn into a node add up to those of all edges."""
    backbone = network(name, ARRAYS)
    graph = batched(
        ARRAYS,
        backbone,
        edges(backbone),
        sampler=NeighborSampler(num_neighbors=3),
        batch_size=len(VAL),
    )
    every = batched(
        ARRAYS, backbone, edges(backbone), sampler=ClusterSampler(num_parts=1)
    )

    def received(part, change: Tensor) -> Tensor:
        ids = graph.own_entries(part)
        strengths = graph.problem(part, ids).strengths({"change": change[ids]})
        return row_sum(part.graph.pattern, strengths)[part.seeds]

    whole = part_of(every, VAL, 0)
    change = 0.1 * random((whole.graph.num_entries,), 5)
    expected = received(whole, change)
    drawn = torch.stack(
        [received(part_of(graph, VAL, number), change) for number in range(100)]
    )
    spread = drawn.std(0)
    few = torch.from_numpy(ARRAYS.degree(VAL) <= 3)
    assert few.any() and (~few).any()
    torch.testing.assert_close(drawn[0][few], expected[few])
    assert (spread[~few] > 0).all()
    error = (drawn.mean(0) - expected) / (spread / np.sqrt(len(drawn)) + 1e-7)
    assert error.abs().max() < 4
