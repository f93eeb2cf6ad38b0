"""Networks that take turns with one structure."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import generate_graph
from gsebo.bilevel import Reverse, Tree, check_problem, make_optimizer
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_problem
from gsebo.structure import AmortisedStrength
from gsebo.training import (
    Checkpoint,
    Division,
    Folds,
    FullBatch,
    LoopSettings,
    Networks,
    NodeClassification,
    Patience,
    Progress,
    Redrawn,
    Watcher,
    train_structure,
)
from gsebo.training.outer_step import OptimizerStep
from gsebo.training.tape_derivatives import FLAT

STEPS = 3


@pytest.fixture(scope="module")
def data() -> Data:
    data = generate_graph(40, average_degree=4.0, split="random:20/30/50")
    data.x = data.x.double()
    return data


def labelled(data: Data) -> Tensor:
    return (data.train_mask | data.val_mask).nonzero().squeeze(-1)


def base_of(
    data: Data, *, dropout: float = 0.0, backbone: str = "gcn", **options: Any
) -> NodeClassification:
    return make_problem(
        PreparedGraph(data, torch.device("cpu")),
        NetworkChoices(backbone, 5, 2, dropout, None),
        AmortisedStrength(scorer_channels=3, **options),
        outer_nodes=data.val_mask.nonzero().squeeze(-1),
        weight_decay=5e-4,
        seed=0,
    )


def folds_of(data: Data, number: int) -> Folds:
    """Labelled nodes by their number; a single network holds out one in five."""
    nodes = labelled(data)
    parts = [torch.arange(len(nodes)) % max(number, 5) == k for k in range(number)]
    return Folds([nodes[~part] for part in parts], [nodes[part] for part in parts])


def guesses_for(data: Data, number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    shape = number, data.num_nodes, int(data.y.max()) + 1
    noise = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return list(noise.softmax(-1))


def problem_of(
    data: Data, number: int, base: NodeClassification | None = None, **options: Any
) -> Networks:
    base = base_of(data) if base is None else base
    guesses = guesses_for(data, number)
    return networks_on(base, folds_of(data, number), guesses, **options)


def networks_on(
    base: NodeClassification,
    division: Division,
    guesses: list[Tensor] | None,
    **options: Any,
) -> Networks:
    said = None
    if guesses is not None:
        said = [lambda problem, guess=guess: guess for guess in guesses]
    return Networks(FullBatch(base), division, said, **options)


def base_under(problem: Networks) -> NodeClassification:
    assert isinstance(problem.source, FullBatch)
    return problem.source.base


def train(
    problem: Networks,
    *,
    rounds: int = 2,
    optimizers: Sequence[str] = ("adam", "adam"),
    outer_lr: float = 0.05,
    checkpoint: Checkpoint | None = None,
    watcher: Watcher | None = None,
) -> Progress:
    settings = LoopSettings(
        max_steps=rounds,
        patience=Patience("last", rounds),
        stop_nodes=base_under(problem).outer_nodes,
        fingerprint="",
        checkpoint=checkpoint,
        watcher=watcher,
    )
    (progress,) = train_structure(
        [problem],
        Reverse(),
        make_optimizer(optimizers[0], 0.05),
        OptimizerStep(make_optimizer(optimizers[1], outer_lr)),
        inner_steps=STEPS,
        settings=[settings],
        judged="after",
    )
    return progress


def moved(outer: Tree) -> Tree:
    """Somewhere else than at the start, where most derivatives are zero."""
    generator = torch.Generator().manual_seed(7)
    return {
        name: leaf + 0.3 * torch.randn(leaf.shape, generator=generator).to(leaf)
        for name, leaf in outer.items()
    }


def assert_same_tree(left: Tree, right: Tree) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_network_never_learns_from_what_it_holds_out(data: Data) -> None:
    problem = problem_of(data, 3)
    weights = train(problem, optimizers=("adam", "sgd"), outer_lr=0.0).iterate.weights
    for network in range(3):
        held_out = problem.division.held_out(network)
        labels = problem.labels.clone()
        labels[held_out] = 1 - labels[held_out]
        other = problem_of(data, 3, replace(base_under(problem), labels=labels))
        found = train(other, optimizers=("adam", "sgd"), outer_lr=0.0).iterate.weights
        same = (found[FLAT] == weights[FLAT]).all(-1)
        assert same.tolist() == [number == network for number in range(3)]


def test_what_is_held_out_moves_the_structure(data: Data) -> None:
    problem = problem_of(data, 3)
    labels = problem.labels.clone()
    labels[problem.division.held_out(1)] = 0
    other = problem_of(data, 3, replace(base_under(problem), labels=labels))
    found = [train(each).outer["output"] for each in (problem, other)]
    assert not torch.equal(*found)


def by_hand(
    problem: Networks, guesses: list[Tensor], rounds: int, outer_lr: float
) -> tuple[Tensor, Tree]:
    """The same by autograd through everything, with plain gradient steps."""
    base, step = base_under(problem), 0
    outer = base.initial_outer()
    weights = [base.initial_weights()[FLAT] for _ in range(problem.num_networks)]
    for number in range(rounds * problem.num_networks):
        network = number % problem.num_networks
        guess, flat = guesses[network], weights[network]
        at_first = base.with_state(torch.stack([guess, guess]))
        with torch.no_grad():
            predicted = at_first.logits({FLAT: flat}, outer, None).softmax(-1)
        here = problem.source.problem(problem.division, number)
        here = here.with_state(torch.stack([guess, predicted]))
        leaves = {name: leaf.requires_grad_() for name, leaf in outer.items()}
        flat = flat.detach().requires_grad_()
        for _ in range(STEPS):
            loss = here.inner_loss({FLAT: flat}, leaves, step)
            (slope,) = torch.autograd.grad(loss, flat, create_graph=True)
            flat, step = flat - 0.05 * slope, step + 1
        judged = here.outer_loss({FLAT: flat}, leaves)
        slopes = torch.autograd.grad(judged, list(leaves.values()))
        outer = {
            name: (leaf - outer_lr * slope).detach()
            for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
        }
        outer = base.structure.project(outer)
        weights[network] = flat.detach()
    return torch.stack(weights), outer


@pytest.mark.parametrize("number", [1, 2])
def test_equals_a_loop_by_hand(data: Data, number: int) -> None:
    base = base_of(data, dropout=0.5, residual=True, scorer_decay=0.01)
    problem = problem_of(data, number, base)
    found = train(problem, rounds=3, optimizers=("sgd", "sgd"))
    weights, outer = by_hand(problem, guesses_for(data, number), 3, 0.05)
    close = {"rtol": 0.0, "atol": 1e-10}
    each = found.iterate.weights[FLAT].reshape(number, -1)
    torch.testing.assert_close(each, weights, **close)
    torch.testing.assert_close(found.outer, outer, **close)
    assert bool(found.outer["output"].any())
    assert found.iterate.step == 3 * STEPS * number
    assert [record.inner_steps for record in found.history] == [
        STEPS * number * each for each in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"per_layer": True}, {"residual": True}, {"backbone": "gat"}],
    ids=["plain", "per_layer", "residual", "gat"],
)
def test_the_hypergradient_of_a_turn(data: Data, options: dict[str, Any]) -> None:
    problem = problem_of(data, 2, base_of(data, **options))
    outer, own = (
        moved(base_under(problem).initial_outer()),
        base_under(problem).initial_weights(),
    )
    for number in range(problem.num_networks):
        check = check_problem(
            problem.turn(number, range(STEPS)).problem(own, outer),
            make_optimizer("adam", 0.05),
            own,
            outer,
            STEPS,
        )
        assert check.relative_error < 1e-6
        assert bool((check.numeric != 0).all())


class Killed(Exception):
    pass


@pytest.mark.parametrize("redrawn", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_resumed_ends_the_same(
    data: Data, optimizer: str, redrawn: bool, tmp_path: Path
) -> None:
    def problem() -> Networks:
        base = base_of(data, dropout=0.5)
        if not redrawn:
            return problem_of(data, 2, base)
        return networks_on(base, Redrawn(labelled(data), 0.6, 3), guesses_for(data, 1))

    def kill(record, logits) -> None:
        if record.step == 3:
            raise Killed

    each = {"rounds": 4, "optimizers": (optimizer, optimizer)}
    saved = Checkpoint(tmp_path, every_seconds=0)
    with pytest.raises(Killed):
        train(problem(), checkpoint=saved, watcher=kill, **each)
    again = Checkpoint(tmp_path, every_seconds=0, resume=True)
    resumed = train(problem(), checkpoint=again, **each)
    undisturbed = train(problem(), **each)
    for tree in ("best_weights", "best_outer", "outer"):
        assert_same_tree(getattr(resumed, tree), getattr(undisturbed, tree))
    ends = [progress.iterate for progress in (resumed, undisturbed)]
    assert_same_tree(ends[0].state.slots, ends[1].state.slots)
    assert (ends[0].step, ends[0].state.count) == (ends[1].step, ends[1].state.count)
    records = [
        [replace(record, seconds=0.0) for record in progress.history]
        for progress in (resumed, undisturbed)
    ]
    assert records[0] == records[1]


def test_a_labelled_node_is_judged_by_who_left_it_out(data: Data) -> None:
    problem = problem_of(data, 3)
    progress = train(problem)
    at = progress.best_weights, progress.best_outer
    scores, base = problem.scores(*at), base_under(problem)
    predicted = []
    for network, own in enumerate(problem.networks(at[0])):
        state = problem.state_at(network)(base, own, at[1])
        logits = base.with_state(state).scores(own, at[1])
        predicted.append(logits.softmax(-1))
    for network, own in enumerate(predicted):
        nodes = problem.division.held_out(network)
        torch.testing.assert_close(scores[nodes].softmax(-1), own[nodes])
    others = data.test_mask
    mean = torch.stack(predicted).mean(0)
    torch.testing.assert_close(scores[others].softmax(-1), mean[others])


def test_without_outer_steps_nothing_changes(data: Data) -> None:
    progress = train(problem_of(data, 2), optimizers=("adam", "sgd"), outer_lr=0.0)
    found = [(one.changed_edges, one.changed_strength) for one in progress.history]
    assert found == [(0, 1.0)] * 2
    assert all(one.changed_edges for one in train(problem_of(data, 2)).history)


def test_without_its_own_predictions_the_guess_stands_for_both(data: Data) -> None:
    problem = problem_of(data, 2, own_predictions=False)
    own, outer = (
        base_under(problem).initial_weights(),
        moved(base_under(problem).initial_outer()),
    )
    for network in range(problem.num_networks):
        guess = guesses_for(data, 2)[network]
        state = problem.state_at(network)(base_under(problem), own, outer)
        assert all(torch.equal(each, guess) for each in state)
    blind = networks_on(base_of(data), folds_of(data, 2), None)
    assert blind.state_at(0)(base_under(blind), own, outer) is None
    assert len(train(blind).history) == 2
