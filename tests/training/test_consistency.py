"""What nodes without labels teach: the loss, its derivatives, and who is taught."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data

from gsebo import GSEBO, check_hypergradient
from gsebo.bilevel import (
    HYPERGRADIENTS,
    HypergradientCheck,
    Reverse,
    Tree,
    Unrolled,
    adam,
    begin,
    check_problem,
)
from gsebo.bilevel.derivatives import AutogradDerivatives
from gsebo.bilevel.tree import flatten
from gsebo.methods import GraphClassifier
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_problem
from gsebo.sparse import Noise
from gsebo.structure import AmortisedStrength
from gsebo.training import NodeClassification
from gsebo.training.consistency import Consistency

# The folders of tests are packages side by side.
from methods.examples import assert_same_fit, problem_of, quick, small_graph

from .test_networks import moved

SEED = 3


def taught(
    weight: float = 1.0, views: int = 3, temperature: float = 0.5, warmup: int = 1
) -> Consistency:
    return Consistency(weight, views, temperature, warmup)


def guesses(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


# --- how far views are from each other -----------------------------------------------

temperatures = st.sampled_from([0.1, 0.4, 0.5, 1.0, 3.0])


@given(
    seed=st.integers(0, 99),
    views=st.integers(1, 4),
    classes=st.integers(2, 5),
    temperature=temperatures,
)
def test_it_is_what_is_written(
    seed: int, views: int, classes: int, temperature: float
) -> None:
    p = guesses(seed, views, 4, classes)
    found = taught(views=views, temperature=temperature).disagreement(p)
    squares = []
    for node in range(4):
        power = p[:, node].mean(0).numpy() ** (1 / temperature)
        target = power / power.sum()
        squares += [((p[s, node].numpy() - target) ** 2).sum() for s in range(views)]
    assert float(found) == pytest.approx(np.mean(squares), rel=1e-10)


@given(seed=st.integers(0, 99), views=st.integers(1, 4), temperature=temperatures)
def test_whoever_is_sure_of_the_same_agrees(
    seed: int, views: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (5,), generator=generator)
    for dtype, tolerance in ((torch.float64, 1e-18), (torch.float32, 1e-9)):
        sure = one_hot(labels, 3).to(dtype).expand(views, -1, -1)
        found = float(taught(temperature=temperature).disagreement(sure))
        assert 0 <= found <= tolerance
    # One view that is sure of another class disagrees.
    other = torch.cat([sure, one_hot((labels + 1) % 3, 3).to(dtype)[None]])
    assert float(taught(temperature=temperature).disagreement(other)) > 0.1


def test_views_that_are_equal_are_made_sharper_below_a_temperature_of_one() -> None:
    same = guesses(0, 1, 6, 3).expand(4, -1, -1)
    assert float(taught(temperature=1.0).disagreement(same)) == pytest.approx(0)
    sharper = [float(taught(temperature=t).disagreement(same)) for t in (0.9, 0.5, 0.1)]
    assert 0 < sharper[0] < sharper[1] < sharper[2]


@given(seed=st.integers(0, 99), temperature=temperatures)
def test_the_order_of_views_and_of_nodes_does_not_count(
    seed: int, temperature: float
) -> None:
    p, consistency = guesses(seed, 3, 5, 4), taught(temperature=temperature)
    for other in (p[[2, 0, 1]], p[:, [4, 2, 0, 1, 3]], p[..., [3, 1, 0, 2]]):
        torch.testing.assert_close(
            consistency.disagreement(other), consistency.disagreement(p)
        )


@given(seed=st.integers(0, 99), temperature=temperatures)
def test_no_derivative_goes_into_what_all_say(seed: int, temperature: float) -> None:
    p, consistency = guesses(seed, 3, 2, 3), taught(temperature=temperature)
    leaf = p.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(consistency.disagreement(leaf), leaf)
    together = p.mean(0) ** (1 / temperature)
    target = together / together.sum(-1, keepdim=True)

    def held_fixed(p: Tensor) -> Tensor:
        return (p - target).square().sum(-1).mean()

    step = 1e-6
    for place in np.ndindex(*p.shape):
        shift = torch.zeros_like(p)
        shift[place] = step
        slope = (held_fixed(p + shift) - held_fixed(p - shift)) / (2 * step)
        assert float(gradient[place]) == pytest.approx(float(slope), abs=1e-8)


@given(seed=st.integers(0, 99), temperature=temperatures)
def test_what_all_say_moves_where_a_step_is_differentiated(
    seed: int, temperature: float
) -> None:
    """That no derivative goes into it is true of the step, not of what steps do."""
    p, consistency = guesses(seed, 3, 2, 3), taught(temperature=temperature)
    along = guesses(seed + 100, *p.shape) - 0.5

    def slope(at: Tensor) -> Tensor:
        leaf = at if at.requires_grad else at.clone().requires_grad_()
        loss = 3 * consistency.disagreement(leaf)
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        return (gradient * along).sum()

    leaf = p.clone().requires_grad_()
    (found,) = torch.autograd.grad(slope(leaf), leaf)
    step = 1e-6
    for place in np.ndindex(*p.shape):
        shift = torch.zeros_like(p)
        shift[place] = step
        expected = (slope(p + shift) - slope(p - shift)).detach() / (2 * step)
        assert float(found[place]) == pytest.approx(float(expected), rel=1e-4, abs=1e-6)


# --- the loss of a step --------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Data:
    data = small_graph(30)
    data.x = data.x.double()
    return data


def made(data: Data, consistency: Consistency | None, **options: Any) -> Any:
    model = GSEBO(
        **{"hidden_channels": 5, "dropout": 0.4, "random_state": SEED} | options
    )
    return replace(problem_of(model, data), consistency=consistency)


def somewhere(problem: NodeClassification) -> tuple[Tree, Tree]:
    weights = moved(problem.initial_weights())
    outer = problem.initial_outer()
    return weights, {name: leaf * 0.8 for name, leaf in moved(outer).items()}


def loss_and_gradient(
    problem: NodeClassification, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    weights, outer = somewhere(problem)
    leaves = [each.requires_grad_() for each in (*weights.values(), *outer.values())]
    loss = problem.inner_loss(weights, outer, step)
    return loss, *torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("backbone", ["gcn", "grand"])
@pytest.mark.parametrize("step", [0, 7])
def test_one_view_of_no_weight_is_the_loss_without(
    data: Data, backbone: str, step: int
) -> None:
    """To the last bit: the noise of a step with one view is that of the step."""
    plain = made(data, None, backbone=backbone)
    same = made(data, taught(0.0, views=1), backbone=backbone)
    for left, right in zip(
        loss_and_gradient(plain, step), loss_and_gradient(same, step), strict=True
    ):
        assert torch.equal(left, right)


def test_the_labels_count_by_the_mean_of_the_views(data: Data) -> None:
    views, step = 3, 5
    problem = made(data, taught(0.0, views), weight_decay=0.0)
    at = somewhere(problem)
    nodes = problem.inner_nodes
    each = [
        cross_entropy(
            problem.logits(*at, Noise(SEED, views * step + number))[nodes],
            problem.labels[nodes],
        )
        for number in range(views)
    ]
    torch.testing.assert_close(problem.inner_loss(*at, step), torch.stack(each).mean())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("step", "warmup", "share"), [(0, 4, 0.25), (2, 4, 0.75), (3, 4, 1), (9, 4, 1)]
)
def test_the_weight_grows_until_the_warm_up_is_over(
    data: Data, reduction: str, step: int, warmup: int, share: float
) -> None:
    options = {"inner_reduction": reduction}
    none, some = (
        made(data, taught(weight, 3, 0.5, warmup), **options) for weight in (0.0, 2.0)
    )
    at = somewhere(none)
    views = [some.logits(*at, Noise(SEED, 3 * step + number)) for number in range(3)]
    apart = taught().disagreement(torch.stack(views).softmax(-1))
    added = some.inner_loss(*at, step) - none.inner_loss(*at, step)
    torch.testing.assert_close(added, 2.0 * share * apart)


def test_no_two_views_of_a_training_have_the_same_noise() -> None:
    seen: list[Noise] = []

    def logits(noise: Noise) -> Tensor:
        seen.append(noise)
        return guesses(noise.step, 4, 3)

    consistency = taught(views=3)
    for step in range(5):
        consistency.loss(logits, lambda view: view.sum(), Noise(SEED, step))
    assert len(set(seen)) == 15
    assert {noise.seed for noise in seen} == {SEED}


# --- derivatives ---------------------------------------------------------------------


def amortised(
    data: Data, consistency: Consistency | None, backbone: str = "gcn"
) -> NodeClassification:
    """The structure of amortised strengths, which compares predictions."""
    problem = make_problem(
        PreparedGraph(data, torch.device("cpu")),
        NetworkChoices(backbone, 4, 2, 0.4, None),
        AmortisedStrength(scorer_channels=3),
        outer_nodes=data.val_mask.nonzero().squeeze(-1),
        weight_decay=5e-4,
        seed=SEED,
        consistency=consistency,
    )
    first, second = guesses(5, 2, data.num_nodes, int(data.y.max()) + 1)
    return problem.with_state((first, second))


def test_there_are_no_kernel_calls_for_it(data: Data) -> None:
    for consistency in (None, taught()):
        problem = made(data, consistency)
        assert (problem.programs is None) == (consistency is not None)
        assert (amortised(data, consistency).programs is None) == (
            consistency is not None
        )
    weights, outer = somewhere(problem)
    assert problem.derivatives(outer) is None
    plain = AutogradDerivatives(problem, outer, range(4, 5))
    gradient, loss = plain.inner_gradient(weights, 4)
    value, by_weights, _ = loss_and_gradient(problem, 4)
    torch.testing.assert_close(loss, value.detach())
    torch.testing.assert_close(flatten(gradient), by_weights)


@pytest.mark.parametrize("structure", ["edge", "amortised"])
@pytest.mark.parametrize("backbone", ["gcn", "grand"])
def test_reverse_is_unrolled(data: Data, structure: str, backbone: str) -> None:
    make = amortised if structure == "amortised" else made
    problem = make(data, taught(2.0, views=2, warmup=3), backbone=backbone)
    optimizer = adam(0.01)
    outer = moved(problem.initial_outer())
    start = begin(optimizer, problem.initial_weights(), step=1)
    found = Reverse().run(problem, optimizer, start, outer, 4)
    oracle = Unrolled().run(problem, optimizer, start, outer, 4)
    torch.testing.assert_close(flatten(found.gradient), flatten(oracle.gradient))
    assert bool(flatten(found.gradient).any())
    torch.testing.assert_close(found.inner_losses, oracle.inner_losses)


def checked(model: GSEBO, data: Data) -> HypergradientCheck:
    return check_hypergradient(model, data, inner_steps=4, directions=2)


@pytest.mark.parametrize("engine", ["reverse", "unrolled"])
@pytest.mark.parametrize("backbone", ["gcn", "grand"])
@pytest.mark.parametrize(
    "options",
    [{"consistency": 0.0}, {}, {"temperature": 1.0, "direct_term": True}],
    ids=["none", "sharpened", "direct"],
)
def test_the_hypergradient_equals_finite_differences_through_the_training(
    data: Data, engine: str, backbone: str, options: dict[str, Any]
) -> None:
    """What views are drawn to moves with the strengths, too."""
    model = GSEBO(
        **{
            "backbone": backbone,
            "hidden_channels": 5,
            "random_state": SEED,
            "consistency": 2.0,
            "num_views": 2,
            "warmup": 3,
            "hypergradient": engine,
        }
        | options
    )
    assert checked(model, data).relative_error < 1e-5


@pytest.mark.parametrize("weight", [None, 2.0])
def test_so_does_that_of_amortised_strengths(data: Data, weight: float | None) -> None:
    consistency = None if weight is None else taught(weight, views=2, warmup=3)
    problem = amortised(data, consistency)
    check = check_problem(
        problem,
        adam(0.01),
        problem.initial_weights(),
        moved(problem.initial_outer()),
        4,
        directions=2,
    )
    assert check.relative_error < 1e-5


# --- who is taught -------------------------------------------------------------------

TAUGHT = ("vanilla", "train_val", "frozen", "gsebo", "amortised", "inoculated")
SETTINGS = {"num_views": 2, "temperature": 0.4, "warmup": 3}


def fit(name: str, data: Data, **changes: Any) -> GraphClassifier:
    return quick(name, **changes).fit(data)


@pytest.mark.parametrize("name", TAUGHT)
def test_without_a_weight_the_settings_make_no_difference(name: str) -> None:
    data = small_graph(40)
    assert_same_fit(fit(name, data, consistency=0.0, **SETTINGS), fit(name, data))


@pytest.mark.parametrize("name", ["vanilla", "gsebo", "amortised"])
def test_each_setting_makes_a_difference(name: str) -> None:
    data = small_graph(40)
    settings = {"consistency": 1.0, **SETTINGS}
    fits = [fit(name, data), fit(name, data, **settings)]
    changes = ({"num_views": 3}, {"temperature": 0.9}, {"warmup": 9})
    fits += [fit(name, data, **settings | change) for change in changes]
    found = [model.probability_ for model in fits]
    for place, one in enumerate(found):
        assert not any(torch.equal(one, other) for other in found[:place])


@pytest.mark.parametrize("engine", list(HYPERGRADIENTS))
def test_every_engine_goes_through_it(engine: str) -> None:
    data = small_graph(40)
    settings = {**SETTINGS, "hypergradient": engine, "select_by": "last"}
    plain, taught = (
        fit("gsebo", data, consistency=weight, **settings) for weight in (0.0, 1.0)
    )
    assert bool(taught.strength_.isfinite().all())
    assert not torch.equal(taught.strength_, taught.initial_strength_)
    assert not torch.equal(taught.strength_, plain.strength_)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_nodes_without_labels_teach(weight: float) -> None:
    """An MLP hears of other nodes by nothing else."""
    data = small_graph(40)
    other = data.clone()
    unlabelled = data.test_mask.nonzero()[0]
    other.x[unlabelled] += 1
    options = {"backbone": "mlp", "consistency": weight, "dropout": 0.0}
    options |= {"select_by": "last", "num_views": 2}
    left, right = (fit("vanilla", each, **options) for each in (data, other))
    same = torch.ones(data.num_nodes, dtype=torch.bool)
    same[unlabelled] = False
    equal = torch.equal(left.probability_[same], right.probability_[same])
    assert equal == (weight == 0)


@pytest.mark.parametrize("name", ["vanilla", "gsebo"])
def test_replicas_are_what_they_would_be_alone(name: str) -> None:
    data, settings = small_graph(40), {"consistency": 1.0, **SETTINGS}
    together = quick(name, **settings).fit(data, replicas=2).replicas_
    for seed, replica in enumerate(together):
        assert_same_fit(replica, fit(name, data, **settings, random_state=seed))
