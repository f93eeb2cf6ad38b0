"""The loop as an estimator runs it: history, patience, watchers, divergence."""

import math
import warnings
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import GSEBO, Frozen, InvalidInput, Vanilla, generate_graph
from gsebo.bilevel import Hypergradient, Reverse
from gsebo.methods.fitting import outer_and_stopping_nodes
from gsebo.training import StepRecord


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(60, average_degree=5.0, split="random:20/30/50")


def make(**changes: Any) -> GSEBO:
    parameters = {
        "hidden_channels": 8,
        "inner_steps": 3,
        "max_outer_steps": 6,
        "outer_step": "paper",
        "outer_lr": 0.2,
        "random_state": 0,
    }
    return GSEBO(**parameters | changes)


# --- history -------------------------------------------------------------------------


def test_history_holds_one_record_per_step(data: Data) -> None:
    history = make().fit(data).history_
    assert [record.step for record in history] == [1, 2, 3, 4, 5, 6]
    assert [record.inner_steps for record in history] == [3, 6, 9, 12, 15, 18]
    assert {field.name for field in fields(StepRecord)} == set(vars(history[0]))
    for record in history:
        assert math.isfinite(record.train_loss)
        assert record.val_loss > 0
        assert 0 <= record.train_accuracy <= 1
        assert 0 <= record.val_accuracy <= 1
    seconds = [record.seconds for record in history]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


@pytest.mark.parametrize("model", [make(), Frozen(max_outer_steps=3, random_state=0)])
def test_the_kept_record_describes_the_model(data: Data, model) -> None:
    best = model.fit(data).history_[model.best_step_ - 1]
    assert best.step == model.best_step_
    assert best.train_accuracy == pytest.approx(model.score(data, "train"))
    assert best.val_accuracy == pytest.approx(model.score(data, "val"))
    truth = model.probability_[data.val_mask, data.y[data.val_mask]]
    assert best.val_loss == pytest.approx(float(-truth.log().mean()), rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"per_layer": True}])
def test_changed_edges_are_counted(data: Data, options: dict[str, bool]) -> None:
    model = make(**options).fit(data)
    assert model.best_step_ > 1
    first, best = model.history_[0], model.history_[model.best_step_ - 1]
    assert (first.changed_edges, first.changed_strength) == (0, 1.0)
    strength = model.strength_.reshape(-1, data.num_edges)
    moved = strength != model.initial_strength_
    assert 0 < best.changed_edges == int(moved.any(0).sum()) <= data.num_edges
    ratio = (strength / model.initial_strength_)[moved].mean()
    assert best.changed_strength == pytest.approx(float(ratio), rel=1e-5)


def test_a_fixed_structure_changes_nothing(data: Data) -> None:
    for record in Frozen(max_outer_steps=2).fit(data).history_:
        assert (record.changed_edges, record.changed_strength) == (0, 1.0)


# --- stopping ------------------------------------------------------------------------


@pytest.mark.parametrize("select_by", ["loss", "accuracy"])
@pytest.mark.parametrize("patience", [1, 3])
def test_patience_is_honoured(data: Data, select_by: str, patience: int) -> None:
    model = Vanilla(
        inner_lr=0.2,
        max_epochs=200,
        patience=patience,
        select_by=select_by,
        random_state=0,
    ).fit(data)
    history = model.history_
    assert len(history) < 200
    assert len(history) - model.best_step_ == patience
    if select_by == "loss":
        best = min(history, key=lambda r: r.val_loss)
    else:
        best = min(history, key=lambda r: (-r.val_accuracy, r.val_loss))
    assert best.step == model.best_step_


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(20, 60))
def test_holdout_halves_are_disjoint_and_cover(seed: int, num_nodes: int) -> None:
    data = generate_graph(num_nodes, average_degree=3.0, seed=seed % 5)
    outer, stop = outer_and_stopping_nodes(data, "holdout", seed)
    together = torch.cat([outer, stop]).sort().values
    assert torch.equal(together, data.val_mask.nonzero().squeeze(-1))
    assert abs(len(outer) - len(stop)) <= 1
    again = outer_and_stopping_nodes(data, "holdout", seed)
    assert torch.equal(again[0], outer)
    both = outer_and_stopping_nodes(data, "val", seed)
    assert torch.equal(both[0], both[1])
    assert torch.equal(both[0], together)


def test_a_holdout_reports_its_own_half(data: Data) -> None:
    model = make(stop_on="holdout").fit(data)
    _, stop = outer_and_stopping_nodes(data, "holdout", 0)
    mask = torch.zeros(60, dtype=torch.bool)
    mask[stop] = True
    best = model.history_[model.best_step_ - 1]
    assert best.val_accuracy == pytest.approx(model.score(data, mask))
    assert not torch.equal(model.probability_, make().fit(data).probability_)


# --- watching ------------------------------------------------------------------------


def test_a_watcher_sees_every_step(data: Data) -> None:
    seen: list[tuple[StepRecord, torch.Tensor]] = []
    model = make().fit(data, watcher=lambda *step: seen.append(step))
    assert [record for record, _ in seen] == model.history_
    logits = seen[model.best_step_ - 1][1]
    assert not logits.requires_grad
    torch.testing.assert_close(logits.softmax(-1), model.probability_)
    assert torch.equal(model.probability_, make().fit(data).probability_)


def test_what_a_watcher_raises_comes_out(data: Data) -> None:
    def stop(record: StepRecord, logits: torch.Tensor) -> None:
        raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        make().fit(data, watcher=stop)
    assert torch.get_num_threads() == threads


# --- divergence ----------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "momentum"])
@pytest.mark.parametrize("method", [make, Frozen, Vanilla])
@pytest.mark.parametrize("rate", [1e18, 1e25, 1e30])
def test_diverging_at_once_is_told(
    data: Data, method, optimizer: str, rate: float
) -> None:
    model = method(inner_lr=rate, inner_optimizer=optimizer, random_state=0)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(data)
    except InvalidInput as error:
        assert "before any usable step" in str(error)
        assert not hasattr(model, "model_")
    else:
        assert [warning.category for warning in caught] == [RuntimeWarning]
        assert bool(model.probability_.isfinite().all())


@pytest.mark.parametrize("parameter", ["inner_lr", "outer_lr", "weight_decay"])
def test_what_single_precision_cannot_hold_is_refused(
    data: Data, parameter: str
) -> None:
    with pytest.raises(InvalidInput, match=parameter):
        make(**{parameter: 1e300}).fit(data)


def test_features_too_large_are_refused(data: Data) -> None:
    scaled = data.clone()
    scaled.x = data.x * 1e37
    with pytest.raises(InvalidInput, match="smaller features"):
        make().fit(scaled)


@pytest.mark.parametrize("node", ["train", "val", "test"])
def test_one_node_too_large_is_refused(data: Data, node: str) -> None:
    scaled = data.clone()
    scaled.x[data[f"{node}_mask"].nonzero()[0]] = 3e38
    with pytest.raises(InvalidInput, match="smaller features"):
        make().fit(scaled)


@pytest.mark.parametrize("method", [make, Frozen, Vanilla])
def test_diverging_later_keeps_the_best_state(data: Data, method) -> None:
    # Each step multiplies the weights by 1 - lr λ = -9.
    model = method(
        inner_optimizer="sgd", inner_lr=10.0, weight_decay=1.0, random_state=0
    )
    model.set_params(patience=100)
    if isinstance(model, GSEBO):
        model.set_params(max_outer_steps=100)
    with pytest.warns(RuntimeWarning, match="training diverged at step"):
        model.fit(data)
    assert len(model.history_) >= 1
    assert bool(model.probability_.isfinite().all())
    assert bool(model.strength_.isfinite().all())
    assert all(math.isfinite(record.val_loss) for record in model.history_)
    losses = [record.val_loss for record in model.history_]
    assert model.best_step_ == 1 + losses.index(min(losses))


@dataclass(frozen=True)
class Breaking(Hypergradient):
    """Gives NaN from some step on."""

    after: int
    direct_term: bool = False

    def run(self, problem, optimizer, iterate, outer, steps):
        result = Reverse(False).run(problem, optimizer, iterate, outer, steps)
        if result.iterate.step <= self.after * steps:
            return result
        broken = {key: leaf * math.nan for key, leaf in result.gradient.items()}
        return result._replace(gradient=broken)


def test_a_hypergradient_that_breaks_stops_the_fit(data: Data) -> None:
    with pytest.warns(RuntimeWarning, match="diverged at step 3"):
        model = make(hypergradient=Breaking(after=2)).fit(data)
    assert len(model.history_) == 2
    assert bool(model.strength_.isfinite().all())
    with pytest.raises(InvalidInput, match="diverged at step 1"):
        make(hypergradient=Breaking(after=0)).fit(data)


# --- strengths -----------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("rate", [1.0, 1e30])
def test_strengths_stay_between_zero_and_one(
    data: Data, backbone: str, optimizer: str, rate: float
) -> None:
    model = make(
        backbone=backbone, outer_optimizer=optimizer, outer_lr=rate, max_outer_steps=4
    ).fit(data)
    parts = [model.strength_, model.model_.strengths]
    for strength in parts + [model.loop_strength_] * (backbone != "sage"):
        assert float(strength.min()) >= 0
        assert float(strength.max()) <= 1 + 1e-6


def test_per_layer_gives_each_layer_its_own(data: Data) -> None:
    model = make(per_layer=True, num_layers=3).fit(data)
    assert model.strength_.shape == (3, data.num_edges)
    assert model.initial_strength_.shape == (data.num_edges,)
    assert model.loop_strength_.shape == (3, 60)
    assert model.graph_.edge_strength.shape == (data.num_edges, 3)
    assert model.graph_.num_nodes == 60
    assert not torch.equal(model.strength_[0], model.strength_[1])
    shared = make(num_layers=3).fit(data)
    assert shared.strength_.shape == (data.num_edges,)


def test_tied_directions_change_together(data: Data) -> None:
    model = make(tied=True).fit(data)
    change = model.strength_ - model.initial_strength_
    edges = {tuple(e): k for k, e in enumerate(data.edge_index.T.tolist())}
    back = torch.tensor([edges[v, u] for u, v in edges])
    assert torch.allclose(change, change[back], atol=1e-7)
    assert change.abs().max() > 0
    free = make().fit(data)
    change = free.strength_ - free.initial_strength_
    assert not torch.allclose(change, change[back], atol=1e-7)


def test_loops_are_learned_only_if_asked(data: Data) -> None:
    still = make(learn_self_loops=False).fit(data)
    vanilla = Frozen(max_outer_steps=1, random_state=0).fit(data)
    assert torch.equal(still.loop_strength_, vanilla.loop_strength_)
    assert not torch.equal(still.strength_, vanilla.strength_)
    assert not torch.equal(make().fit(data).loop_strength_, vanilla.loop_strength_)
    assert make(backbone="sage").fit(data).loop_strength_ is None
