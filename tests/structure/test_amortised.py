"""The learned function of edges: its start, derivatives, axes, and other graphs."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.func import functional_call

from gsebo.errors import InvalidInput
from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.nn import make_backbone
from gsebo.structure import AmortisedStrength, GraphContext
from gsebo.structure.evidence import evidence_columns

from .graphs import EDGES, NUM_NODES, examples, graph, graphs

CHANNELS, CLASSES, LAYERS = 4, 3, 2
SIZES = {
    "in_channels": CHANNELS,
    "hidden_channels": 5,
    "out_channels": CLASSES,
    "num_layers": LAYERS,
    "dropout": 0.0,
}
networks = pytest.mark.parametrize("network", ["gcn", "gat", "sage", "jk"])
both = pytest.mark.parametrize("per_layer", [False, True])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def state_of(num_nodes: int) -> Tensor:
    return random(2, num_nodes, CLASSES, seed=5).softmax(-1)


def ground_of(
    edges: CanonicalGraph | str = "directed",
    network: str = "gcn",
    candidate: Iterable[int] | None = None,
) -> GraphContext:
    """A graph with features; some of its edges are candidates."""
    if isinstance(edges, str):
        edges = graph(EDGES[edges], NUM_NODES)
    backbone = make_backbone(network, **SIZES).double()
    where = Topology.of(edges, self_loops=backbone.self_loops, device="cpu")
    flag = None
    if candidate is not None:
        flag = torch.zeros(edges.num_edges, dtype=torch.bool)
        flag[list(candidate)] = True
    return GraphContext(
        graph=where,
        start=backbone.initial_strength(where.pattern),
        num_layers=LAYERS,
        features=random(edges.num_nodes, CHANNELS),
        normalise=backbone.normalise,
        candidate=flag,
    )


def laid_over(ground: GraphContext, **options: object) -> AmortisedStrength:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        structure = AmortisedStrength(scorer_channels=3, **options)
        structure.setup(ground)
    return structure


def learned(structure: AmortisedStrength, seed: int = 1) -> dict[str, Tensor]:
    """Parameters as they might be after some steps."""
    return {
        name: random(*leaf.shape, seed=seed + number) - 0.5
        for number, (name, leaf) in enumerate(structure.named_parameters())
    }


def taught(structure: AmortisedStrength) -> AmortisedStrength:
    structure.load_state_dict(learned(structure), strict=False)
    return structure


# --- start ---------------------------------------------------------------------------


@networks
@both
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", EDGES)
def test_starts_at_the_vanilla_strengths(
    network: str, per_layer: bool, renormalise: bool, residual: bool, kind: str
) -> None:
    ground = ground_of(kind, network)
    structure = laid_over(
        ground, per_layer=per_layer, renormalise=renormalise, residual=residual
    )
    for state in (None, state_of(NUM_NODES)):
        out = structure(ground.graph, state)
        lead = (LAYERS,) if per_layer else ()
        assert out.shape == (*lead, ground.graph.num_entries)
        torch.testing.assert_close(out, ground.start.expand_as(out))


@examples
@given(graphs())
def test_every_edge_weighs_one_at_the_start(edges: CanonicalGraph) -> None:
    ground = ground_of(edges)
    for dtype in (torch.float32, torch.float64):
        structure = laid_over(ground).to(dtype)
        weights = structure.weights(ground.graph, structure.evidence, None, None)
        one = torch.ones(edges.num_edges, dtype=dtype)
        ulp = torch.finfo(dtype).eps
        torch.testing.assert_close(weights, one, rtol=ulp, atol=0)


@networks
@pytest.mark.parametrize("residual", [False, True])
def test_candidates_start_near_zero_and_all_else_as_before(
    network: str, residual: bool
) -> None:
    ground = ground_of("undirected", network, candidate=[1, 4])
    structure = laid_over(ground, residual=residual)
    weights = structure(ground.graph, normalised=False)
    given, added = weights[~ground.candidate], weights[ground.candidate]
    assert ((added > 0) & (added < 0.06)).all()
    torch.testing.assert_close(given, torch.ones_like(given))


# --- the function --------------------------------------------------------------------


@networks
@both
def test_gradients_are_those_of_finite_differences(
    network: str, per_layer: bool
) -> None:
    ground = ground_of("undirected", network, candidate=[0, 5])
    structure = laid_over(ground, per_layer=per_layer, residual=True)
    outer = learned(structure)
    state = state_of(NUM_NODES)

    def strengths(*leaves: Tensor) -> Tensor:
        named = dict(zip(outer, leaves, strict=True))
        out: Tensor = functional_call(structure, named, (ground.graph, state))
        return out

    leaves = [leaf.requires_grad_() for leaf in outer.values()]
    assert torch.autograd.gradcheck(strengths, leaves)


@networks
@both
@pytest.mark.parametrize("residual", [False, True])
def test_leading_axes_are_runs_of_their_own(
    network: str, per_layer: bool, residual: bool
) -> None:
    ground = ground_of("directed", network, candidate=[2])
    structure = laid_over(ground, per_layer=per_layer, residual=residual)
    inputs = (ground.graph, state_of(NUM_NODES))
    runs = [learned(structure, seed) for seed in (10, 20, 30)]
    stacked = {name: torch.stack([run[name] for run in runs]) for name in runs[0]}
    together = functional_call(structure, stacked, inputs)
    alone = [functional_call(structure, run, inputs) for run in runs]
    torch.testing.assert_close(together, torch.stack(alone))


@examples
@given(graphs())
def test_the_weights_are_the_formula(edges: CanonicalGraph) -> None:
    ground = ground_of(edges)
    structure = taught(laid_over(ground))
    state = state_of(edges.num_nodes)
    source, target = edges.edge_index
    numbers = []
    for predicted in state:
        sure = predicted.max(-1).values
        numbers += [
            (predicted[source] * predicted[target]).sum(-1),
            torch.minimum(sure[source], sure[target]),
            torch.maximum(sure[source], sure[target]),
        ]
    known = torch.cat([structure.evidence, 2 * torch.stack(numbers, -1) - 1], -1)
    hidden = torch.tanh(known @ structure.hidden + structure.shift)
    score = 2 + (hidden @ structure.output).squeeze(-1)
    expected = torch.sigmoid(score) * (1 + torch.exp(torch.tensor(-2.0).double()))
    found = structure(ground.graph, state, normalised=False)
    torch.testing.assert_close(found, expected)


def test_evidence_has_mean_zero_and_spread_one_or_is_left_out() -> None:
    ground = ground_of("undirected", candidate=[0])
    evidence = laid_over(ground).evidence
    assert evidence.isfinite().all()
    assert evidence.shape == (ground.graph.num_edges, len(evidence_columns("all")) + 1)
    torch.testing.assert_close(
        evidence.mean(0), torch.zeros(len(evidence_columns("all")) + 1).double()
    )
    spread = evidence.std(0, correction=0)
    torch.testing.assert_close(spread, (spread > 0.5).double())


def test_some_evidence_is_some_of_the_columns() -> None:
    ground = ground_of("directed")
    every = laid_over(ground).evidence
    chosen = laid_over(ground, evidence="common, cosine").evidence
    names = list(evidence_columns("all"))
    columns = [names.index("common"), names.index("cosine"), -1]
    assert torch.equal(chosen, every[:, columns])


@pytest.mark.parametrize("names", ["colour", "cosine,colour", "cosine,cosine", "All"])
def test_unknown_evidence_is_refused(names: str) -> None:
    with pytest.raises(InvalidInput, match=f"evidence='{names}' given; expected"):
        AmortisedStrength(evidence=names)


# --- residual ------------------------------------------------------------------------


@both
def test_the_residual_adds_to_the_score_of_its_edge(per_layer: bool) -> None:
    ground = ground_of("directed", candidate=[3])
    structure = laid_over(ground, residual=True, per_layer=per_layer)
    outer = learned(structure)
    lead = (LAYERS,) if per_layer else ()
    assert outer["own"].shape == (*lead, ground.graph.num_edges)

    def scores(own: Tensor) -> Tensor:
        named = {**outer, "own": own}
        options = {"normalised": False}
        weights = functional_call(structure, named, (ground.graph,), options)
        return torch.logit(weights * torch.sigmoid(torch.tensor(2.0).double()))

    moved = scores(outer["own"]) - scores(torch.zeros_like(outer["own"]))
    torch.testing.assert_close(moved, outer["own"])


def test_only_the_residual_and_the_decayed_are_shrunk() -> None:
    ground = ground_of("directed")
    structure = laid_over(ground, residual=True, shrinkage=0.25)
    outer = learned(structure)
    projected = structure.project(outer)
    assert list(projected) == list(outer)
    for name, leaf in outer.items():
        share = 0.75 if name == "own" else 1
        torch.testing.assert_close(projected[name], leaf * share)
    assert "own" not in dict(laid_over(ground).named_parameters())


# --- other graphs --------------------------------------------------------------------


@pytest.mark.parametrize("candidate", [None, [1, 2]])
def test_the_graph_of_the_fit_is_scored_as_in_the_fit(
    candidate: list[int] | None,
) -> None:
    ground = ground_of("undirected", candidate=candidate)
    structure = taught(laid_over(ground))
    state = state_of(NUM_NODES)
    where, flag = ground.graph, ground.candidate
    evidence = structure.evidence_of(where, flag, ground.features)
    weights = structure.weights(where, evidence, flag, state)
    assert torch.equal(weights, structure(where, state, normalised=False))
    strengths = structure.strengths(where, weights)
    assert torch.equal(strengths, structure(where, state))


@pytest.mark.parametrize("first", EDGES)
def test_what_was_learned_scores_other_graphs(first: str) -> None:
    """Restored from its tensors alone, and finite on edges it has never seen."""
    ground = ground_of(first)
    structure = taught(laid_over(ground))
    restored = AmortisedStrength(scorer_channels=3)
    restored.restore(structure.state_dict(), ground.normalise)
    other = ground_of(graph([[0, 1, 2, 5, 6], [1, 2, 0, 0, 5]], 7))
    where, state = other.graph, state_of(7)
    found = []
    for scorer in (structure, restored):
        evidence = scorer.evidence_of(where, None, other.features)
        found.append(scorer.weights(where, evidence, None, state))
    assert torch.equal(*found)
    assert found[0].isfinite().all()


def test_predictions_of_one_graph_are_not_taken_for_another() -> None:
    """The same predictions, while the edges change."""
    ground = ground_of("undirected")
    structure = taught(laid_over(ground))
    state = state_of(NUM_NODES)
    reversed_nodes = 4 - torch.tensor(EDGES["undirected"])
    other = replace(ground, graph=ground_of(graph(reversed_nodes, NUM_NODES)).graph)
    assert other.graph.num_edges == ground.graph.num_edges
    structure(ground.graph, state)
    evidence = structure.evidence_of(other.graph, None, ground.features)
    after = structure.weights(other.graph, evidence, None, state)
    fresh = structure.weights(other.graph, evidence, None, state.clone())
    assert torch.equal(after, fresh)
