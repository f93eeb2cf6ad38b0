"""All contenders compute one hypergradient where they should, and it is right."""

import math

import pytest
import torch
from benchmarks.equality import CANDIDATES, compare
from benchmarks.ours import Ours
from benchmarks.setting import BACKBONES

from .examples import distance, needs, peer, tiny_case

every_peer = pytest.mark.parametrize("who", ["torch", peer("torchopt"), peer("higher")])


@pytest.fixture
def double_by_default():
    # TorchOpt corrects the bias of its moments in the default type.
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@every_peer
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("direct_term", [False, True])
def test_gradient_descent(who: str, backbone: str, direct_term: bool) -> None:
    case = tiny_case(backbone=backbone, optimizer="sgd", direct_term=direct_term)
    found = case.build(who).hypergradient()
    assert distance(found, case.build("ours").hypergradient()) < 1e-12


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("direct_term", [False, True])
def test_adam_of_plain_torch(backbone: str, direct_term: bool) -> None:
    case = tiny_case(backbone=backbone, direct_term=direct_term)
    found = case.build("torch").hypergradient()
    assert distance(found, case.build("ours").hypergradient()) < 1e-12


@needs("torchopt")
@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("backbone", BACKBONES)
def test_adam_of_torchopt(backbone: str) -> None:
    case = tiny_case(backbone=backbone)
    found = case.build("torchopt").hypergradient()
    assert distance(found, case.build("ours").hypergradient()) < 1e-9


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize(
    ("who", "optimizer"),
    [
        ("torch", "sgd"),
        ("torch", "adam"),
        pytest.param("torchopt", "sgd", marks=needs("torchopt")),
        pytest.param("torchopt", "adam", marks=needs("torchopt")),
        pytest.param("higher", "sgd", marks=needs("higher")),
    ],
)
def test_outer_steps_go_on_from_each_other(who: str, optimizer: str) -> None:
    # Rates at which some strengths move far enough to be clipped.
    rate = {"sgd": 100.0, "adam": 50.0}[optimizer]
    case = tiny_case(optimizer=optimizer, outer_rate=rate)
    peers, ours = case.build(who), case.build("ours")
    assert isinstance(ours, Ours)
    for _ in range(3):
        peers.outer_step()
        ours.outer_step()
    assert float(peers.strength.detach().min()) == 0.0
    torch.testing.assert_close(peers.strength.detach(), ours.strength())


@needs("higher")
def test_moments_are_carried_over_to_the_next_context_of_higher() -> None:
    whole, halves = tiny_case(tau=4), tiny_case(tau=2)
    once, twice = whole.build("higher"), halves.build("higher")
    once.hypergradient()
    twice.hypergradient(), twice.hypergradient()
    for one, two in zip(
        once.network.parameters(), twice.network.parameters(), strict=True
    ):
        torch.testing.assert_close(one, two)


def test_ours_agrees_with_finite_differences_of_torch() -> None:
    for optimizer in ("sgd", "adam"):
        (line,) = compare(tiny_case(optimizer=optimizer), ["ours"], directions=2)
        assert line["error"] < 1e-4


@needs("torchopt")
@needs("higher")
def test_what_is_wrong_is_shown_as_wrong() -> None:
    case = tiny_case(weight_decay=0.0)
    # Features that no node has: their weights never get a gradient.
    case.data.x[:, :2] = 0
    lines = compare(case, ["ours", "torch", "torchopt", "higher"], directions=2)
    errors = {line["who"]: line["error"] for line in lines}
    assert set(errors) == {"ours", *CANDIDATES}
    assert errors["ours"] < 1e-4
    assert errors["torch"] < 1e-4
    assert errors["torchopt"] < 1e-4
    assert math.isnan(errors["torchopt, eps_root=0 (its default)"])
    higher = lines[-1]
    assert higher["error_of_own_training"] < 1e-4
    assert higher["difference_to_ours"] > 1e-6
