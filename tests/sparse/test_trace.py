"""What a network does is written down, or refused: never left out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gsebo.sparse import Noise, Pattern, dropout, spmm
from gsebo.sparse.symbol import Strengths, Symbol, Untraceable
from gsebo.tape import Tape, trace

PATTERN = Pattern.from_positions(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
WEIGHTS = {
    "first": torch.zeros(3, 4),
    "second": torch.zeros(4, 4),
    "bias": torch.zeros(4),
}
first, second, bias = WEIGHTS.values()
Network = Callable[[Any, Any], Any]


def traced(network: Network, *, per_layer: bool = False) -> Tape:
    features = Symbol.of_features(3, WEIGHTS)
    return trace(network(features, Strengths(per_layer)), WEIGHTS)


def test_chains_are_one_step() -> None:
    def network(x: Any, strengths: Any) -> Any:
        h = dropout(x, 0.5, Noise(0, 0), 7)
        h = torch.relu(spmm(PATTERN, strengths, h @ first) + bias)
        return dropout(h, 0.25, Noise(0, 0), 8) @ second

    tape = traced(network)
    kinds = [type(step.node).__name__ for step in tape.steps]
    assert kinds == ["Source", "Dropout", "Product", "Propagate", "Dropout", "Product"]
    chain = tape.steps[4].pointwise
    assert chain is not None
    assert (chain.bias, chain.activation) == ("bias", "relu")
    assert (chain.site, chain.rate) == (8, 0.25)
    assert tape.depths == (1, 1, 1, 0, 0, 0) and tape.depth == 1
    assert [step.channels for step in tape.steps] == [3, 3, 4, 4, 4, 4]


def test_factors_are_part_of_a_sum_and_a_bias_is_added_after_it() -> None:
    def network(x: Any, strengths: Any) -> Any:
        h = x @ first
        return torch.relu((h + bias) + 0.5 * spmm(PATTERN, strengths, h))

    tape = traced(network)
    kinds = [type(step.node).__name__ for step in tape.steps]
    assert kinds == ["Source", "Product", "Propagate", "Sum", "Activation"]
    assert tape.steps[3].node.factors == (1.0, 0.5)
    assert tape.steps[4].pointwise.bias == "bias"


def test_layers_have_their_own_strengths() -> None:
    def network(x: Any, strengths: Any) -> Any:
        h = spmm(PATTERN, strengths[0], x @ first)
        return spmm(PATTERN, strengths[1], h @ second)

    tape = traced(network, per_layer=True)
    layers = [step.node.layer for step in tape.steps if step.propagates]
    assert layers == [0, 1]
    assert tape.depths == (2, 2, 1, 1, 0)


@pytest.mark.parametrize(
    "network",
    [
        lambda x, z: x.view(-1),
        lambda x, z: torch.sin(x @ first),
        lambda x, z: torch.cat([x @ first, x @ second], dim=0),
        lambda x, z: x @ torch.zeros(3, 4),
        lambda x, z: (x @ first) + torch.zeros(4),
        lambda x, z: (x @ first) + first,
        lambda x, z: ((x @ first) @ second) @ second,
        lambda x, z: spmm(PATTERN, z, x) @ first,
        lambda x, z: torch.relu(x) @ first,
        lambda x, z: dropout(torch.relu(x), 0.5, Noise(0, 0), 0) @ first,
        lambda x, z: torch.zeros(2, 4),
        lambda x, z: 0.5 * (x @ first),
        lambda x, z: first * (x @ first) + x @ first,
        lambda x, z: 0.5 * x + x,
    ],
    ids=[
        "reshape",
        "sine",
        "rows",
        "no weight",
        "no bias",
        "matrix as bias",
        "a weight twice",
        "features propagated",
        "activated features",
        "activated, then dropped",
        "nothing of the features",
        "scaled, not summed",
        "scaled by a weight",
        "scaled features",
    ],
)
def test_what_there_is_no_kernel_for_is_refused(network: Network) -> None:
    with pytest.raises(Untraceable):
        traced(network)


def test_symbols_are_no_tensors() -> None:
    seen: list[Any] = []

    def network(x: Any, strengths: Any) -> Any:
        seen.append(x)
        return x @ first

    traced(network)
    assert not isinstance(seen[0], Tensor)
