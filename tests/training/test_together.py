"""Weights and structure on one loss, at once and in turns."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from gsebo import Checkpoint, generate_graph
from gsebo.bilevel import Tree, make_optimizer
from gsebo.graph import Propagation
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_task
from gsebo.sparse import Noise
from gsebo.training import (
    JointProblem,
    LoopSettings,
    Member,
    Patience,
    Progress,
    train_together,
)


class Scaled(JointProblem):
    """One number scales all strengths; after each step it is cut to [0, 1]."""

    def initial_outer(self) -> Tree:
        return {"scale": torch.ones((), dtype=self.task.dtype)}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        pattern, strengths = self._propagation(outer)
        noise = Noise(self.task.seed, step)
        logits = self.task.logits(weights, pattern, strengths, noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        return [Member(self._propagation(outer))]

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        return {"scale": outer["scale"].clamp(0, 1)}

    def _propagation(self, outer: Tree) -> Propagation:
        return Propagation(
            self.task.graph.pattern, self.initial_strengths * outer["scale"]
        )


def problem() -> Scaled:
    data = generate_graph(50, split="random:20/30/50", num_features=6)
    data.x = data.x.double()
    network = NetworkChoices("gcn", 4, 2, 0.0, None)
    prepared = PreparedGraph(data, torch.device("cpu"))
    return Scaled(make_task(prepared, network, weight_decay=0.01, seed=1))


def settings(scaled: Scaled, steps: int, **changes: Any) -> LoopSettings:
    options = {
        "max_steps": steps,
        "patience": Patience("last", 100),
        "stop_nodes": scaled.inner_nodes,
        "fingerprint": "",
    }
    return LoopSettings(**options | changes)


def train(
    scaled: Scaled, steps: int, every: int = 1, changes: Any = None, **turns: Any
) -> Progress:
    (progress,) = train_together(
        [scaled],
        make_optimizer("sgd", 0.5),
        make_optimizer("sgd", 0.3),
        steps_per_evaluation=every,
        max_training_steps=steps,
        settings=[settings(scaled, -(-steps // every), **changes or {})],
        **turns,
    )
    return progress


def by_hand(scaled: Scaled, steps: int, weight_steps: int | None) -> tuple[Tree, Tree]:
    """The same with autograd and nothing else."""
    weights, outer = scaled.initial_weights(), scaled.initial_outer()
    step = 0

    def gradients(weights: Tree, outer: Tree) -> tuple[Tensor, Tensor]:
        w = weights["weights"].clone().requires_grad_()
        z = outer["scale"].clone().requires_grad_()
        loss = scaled.loss({"weights": w}, {"scale": z}, step)
        return torch.autograd.grad(loss, (w, z))

    for _ in range(steps):
        by_weights, by_scale = gradients(weights, outer)
        moved = {"scale": (outer["scale"] - 0.3 * by_scale).clamp(0, 1)}
        if weight_steps is None:
            weights = {"weights": weights["weights"] - 0.5 * by_weights}
            step += 1
        else:
            for _ in range(weight_steps):
                by_weights, _ = gradients(weights, moved)
                weights = {"weights": weights["weights"] - 0.5 * by_weights}
                step += 1
        outer = moved
    return weights, outer


@pytest.mark.parametrize("weight_steps", [None, 1, 3])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_steps_are_those_of_plain_autograd(weight_steps: int | None, every: int):
    scaled = problem()
    turns = (
        {} if weight_steps is None else {"in_turns": True, "weight_steps": weight_steps}
    )
    progress = train(scaled, 5, every, **turns)
    weights, outer = by_hand(scaled, 5, weight_steps)
    torch.testing.assert_close(progress.outer, outer)
    torch.testing.assert_close(progress.iterate.weights, weights)
    assert len(progress.history) == -(-5 // every)
    assert progress.iterate.step == 5 * (weight_steps or 1)
    # What is judged are the weights with the structure they end with.
    torch.testing.assert_close(progress.best_outer, outer)


def test_without_an_optimizer_only_settling_moves_the_structure() -> None:
    scaled = problem()
    (progress,) = train_together(
        [scaled],
        make_optimizer("sgd", 0.5),
        None,
        steps_per_evaluation=1,
        max_training_steps=3,
        settings=[settings(scaled, 3)],
    )
    assert torch.equal(progress.outer["scale"], scaled.initial_outer()["scale"])


def test_scores_average_the_probabilities_of_the_members() -> None:
    scaled = problem()
    weights, outer = scaled.initial_weights(), scaled.initial_outer()
    (one,) = scaled.members(weights, outer)
    half = Member(scaled._propagation({"scale": torch.tensor(0.5)}))
    other = Member(half.propagation, {"weights": weights["weights"] * 2})
    scaled.members = lambda *_: [one, half, other]  # type: ignore[method-assign]
    expected = sum(
        scaled.task.logits(w, *m.propagation, None).softmax(-1) / 3
        for w, m in ((weights, one), (weights, half), (other.weights, other))
    )
    found = scaled.scores(weights, outer).softmax(-1)
    torch.testing.assert_close(found, expected)
    mean = scaled.strengths(weights, outer)
    torch.testing.assert_close(mean, scaled.initial_strengths * (1 + 0.5 + 0.5) / 3)


def test_scores_are_finite_however_sure_the_members_are() -> None:
    scaled = problem()
    weights = {"weights": scaled.initial_weights()["weights"] * 1e4}
    outer = scaled.initial_outer()
    (one,) = scaled.members(weights, outer)
    assert bool((scaled.scores(weights, outer).softmax(-1) == 0).any())
    scaled.members = lambda *_: [one, one]  # type: ignore[method-assign]
    assert bool(scaled.scores(weights, outer).isfinite().all())


@pytest.mark.exact
def test_a_stopped_training_goes_on(tmp_path) -> None:
    whole = train(problem(), 6)
    saved = {"checkpoint": Checkpoint(tmp_path, every_seconds=0)}
    train(problem(), 3, changes=saved)
    resumed = {"checkpoint": Checkpoint(tmp_path, every_seconds=0, resume=True)}
    again = train(problem(), 6, changes=resumed)
    assert torch.equal(
        again.iterate.weights["weights"], whole.iterate.weights["weights"]
    )
    assert torch.equal(again.outer["scale"], whole.outer["scale"])


def test_trainings_of_one_fit_have_checkpoints_of_their_own(tmp_path) -> None:
    checkpoint = Checkpoint(tmp_path, every_seconds=0, resume=True)
    first, second = checkpoint.stage(1), checkpoint.stage(2)
    assert len({checkpoint.path, first.path, second.path}) == 3
    ended = train(problem(), 2, changes={"checkpoint": first})
    assert second.load("", "cpu", ended) is None
    loaded = first.load("", "cpu", ended)
    assert loaded is not None and len(loaded.history) == len(ended.history)
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == []
