"""The engines agree with each other and with finite differences on real problems."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import TransformerConv

from gsebo import GSEBO, InvalidInput, check_hypergradient
from gsebo.bilevel import Implicit, Reverse, Unrolled, adam, begin, make_optimizer
from gsebo.bilevel.derivatives import descend, first_derivatives
from gsebo.bilevel.tree import flatten

from .examples import HandWritten, problem_of, small_graph, with_fields

BACKBONES: dict[str, dict[str, Any]] = {
    "gcn": {"backbone": "gcn"},
    "gat": {"backbone": "gat", "backbone_options": {"heads": 2}},
    "sage": {"backbone": "sage"},
    "sage-gcn": {"backbone": "sage-gcn"},
    "jk-concat": {"backbone": "jk", "num_layers": 3},
    "jk-max": {"backbone": "jk", "backbone_options": {"mode": "max"}},
    "jk-lstm": {"backbone": "jk", "backbone_options": {"mode": "lstm"}},
    "jk-sage": {"backbone": "jk-sage"},
    # Not by batch: that takes away the bias of a layer, whose gradient is then nothing
    # but rounding, of which Adam makes a step of full size.
    "strong gcn": {
        "backbone_options": {
            "residual": True,
            "norm": "layer",
            "input_projection": True,
        }
    },
    "appnp": {"backbone": "appnp", "backbone_options": {"hops": 2}},
    "gcnii": {"backbone": "gcnii"},
    "GATv2": {"backbone": "GATv2"},
    "GIN": {"backbone": "GIN"},
    "TransformerConv": {"backbone": TransformerConv, "backbone_options": {"heads": 2}},
    "hand-written": {"backbone": HandWritten(8, 6, 2)},
}
# Kernels of attention of these sizes are compiled for other tests too.
IN_SINGLE = {"gat": {"hidden_channels": 8, "backbone_options": {"heads": 8}}}
every_backbone = pytest.mark.parametrize("choice", BACKBONES)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(30)


def make(choice: str = "gcn", **changes: Any) -> GSEBO:
    parameters = {"hidden_channels": 6, "dropout": 0.5, "random_state": 3}
    return GSEBO(**parameters | BACKBONES[choice] | changes)


def relative_error(left: dict, right: dict) -> float:
    scale = flatten(right).norm()
    assert scale > 0
    return float((flatten(left) - flatten(right)).norm() / scale)


@every_backbone
@pytest.mark.parametrize("direct_term", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-4)]
)
def test_reverse_is_unrolled(
    data: Data, choice: str, direct_term: bool, dtype: torch.dtype, tolerance: float
) -> None:
    sizes = IN_SINGLE.get(choice, {}) if dtype is torch.float32 else {}
    problem = problem_of(make(choice, **sizes), with_fields(data, x=data.x.to(dtype)))
    optimizer, outer = adam(0.01), problem.initial_outer()
    # In the middle of training, so that the optimiser's memory matters too.
    start, _ = descend(
        first_derivatives(problem, outer),
        optimizer,
        begin(optimizer, problem.initial_weights()),
        3,
    )
    replayed = Reverse(direct_term).run(problem, optimizer, start, outer, 5)
    recorded = Unrolled(direct_term).run(problem, optimizer, start, outer, 5)
    assert relative_error(replayed.gradient, recorded.gradient) < tolerance
    torch.testing.assert_close(
        replayed.iterate.weights["weights"], recorded.iterate.weights["weights"]
    )


@every_backbone
def test_reverse_equals_finite_differences(data: Data, choice: str) -> None:
    model = make(choice, inner_steps=4)
    assert check_hypergradient(model, data).relative_error < 1e-5


@pytest.mark.parametrize("hypergradient", ["reverse", "unrolled"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direct_term": True},
        {"per_layer": True},
        {"tied": True},
        {"learn_self_loops": False},
        {"direct_term": True, "per_layer": True, "tied": True},
        {"inner_optimizer": "momentum", "inner_lr": 0.1},
        {"inner_optimizer": "sgd", "inner_lr": 0.5, "dropout": 0.0},
        {"stop_on": "holdout"},
        {"inner_reduction": "sum"},
        {"inner_reduction": "sum", "direct_term": True, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_options_equal_finite_differences(
    data: Data, hypergradient: str, options: dict[str, Any]
) -> None:
    model = make(inner_steps=4, hypergradient=hypergradient, **options)
    assert check_hypergradient(model, data).relative_error < 1e-5


def test_a_check_changes_neither_model_nor_graph(data: Data) -> None:
    model = make(inner_steps=2)
    before, x = dict(vars(model)), data.x
    check_hypergradient(model, data, directions=1)
    assert vars(model) == before
    assert data.x is x
    assert x.dtype == torch.float32


def test_a_check_sees_what_is_missing(data: Data) -> None:
    model = make(inner_steps=6, hypergradient="truncated", inner_lr=0.05)
    model.hypergradient = Reverse(direct_term=False, horizon=1)
    check = check_hypergradient(model, data)
    assert check.relative_error > 1e-3
    with pytest.raises(InvalidInput, match="finite differences"):
        check.raise_if_worse_than(1e-5)


def test_a_fixed_structure_has_no_hypergradient(data: Data) -> None:
    with pytest.raises(InvalidInput, match="nothing to learn"):
        check_hypergradient(make(structure="fixed"), data)


def test_a_check_refuses_bad_parameters(data: Data) -> None:
    with pytest.raises(InvalidInput, match="inner_lr"):
        check_hypergradient(make(inner_lr=-1.0), data)


def test_implicit_approaches_reverse_as_training_converges(data: Data) -> None:
    model = make(dropout=0.0, num_layers=1, weight_decay=0.1)
    problem = problem_of(model, with_fields(data, x=data.x.double()))
    optimizer = make_optimizer("sgd", 0.5)
    weights, outer = problem.initial_weights(), problem.initial_outer()
    errors = []
    for steps in (3, 30, 300):
        start = begin(optimizer, weights)
        exact = Reverse(direct_term=False).run(problem, optimizer, start, outer, steps)
        implicit = Implicit(direct_term=False, tolerance=1e-12, iterations=200)
        found = implicit.run(problem, optimizer, start, outer, steps)
        errors.append(relative_error(found.gradient, exact.gradient))
    assert errors[0] > 5 * errors[1] > 50 * errors[2]
    assert errors[2] < 1e-6
