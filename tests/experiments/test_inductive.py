"""Trials whose test nodes the fit does not see."""

import pytest
import torch
from msgspec.structs import replace

from gsebo import GSEBO, InputWarning, Vanilla
from gsebo.data import visible_part
from gsebo.experiments import Trial, execute
from gsebo.experiments.fit import (
    fitted_graph,
    predicted_probabilities,
    trial_graph,
    visible_noise,
)
from gsebo.experiments.result import (
    full_split_name,
    is_halved,
    same_graph_for_all_seeds,
)

SHORT = {
    "max_outer_steps": 3,
    "inner_steps": 3,
    "outer_step": "paper",
    "outer_lr": 0.5,
}
UNSEEN = Trial(
    method="gsebo",
    backbone="gcn",
    dataset="cora",
    split="unseen:20:file",
    seed=1,
    parameters=SHORT,
    noise=300,
)
VANILLA = replace(UNSEEN, method="vanilla", parameters={"max_epochs": 5})


def test_a_result_is_the_estimators_own() -> None:
    data = trial_graph(UNSEEN)
    assert int(data.unseen_mask.sum()) == 200
    visible = visible_part(data)
    assert visible.num_nodes == 2508
    model = GSEBO(**SHORT, random_state=1, device="cpu").fit(visible)
    with pytest.warns(InputWarning, match="vanilla weight"):
        score = model.score(data, data.unseen_mask)
    (result,) = execute([UNSEEN])
    assert result.ok, result.error
    assert result.test_accuracy == pytest.approx(score, abs=1e-5)
    # Of the false edges only those count that the fit saw.
    false = data.edge_index[:, -600:]
    seen = int((~data.unseen_mask[false]).all(0).sum())
    assert 0 < seen < 600 and visible_noise(data, 300) == seen // 2
    assert result.edges is not None and result.edges[0]["false"]["count"] == seen


def test_seen_is_the_same_test_nodes_for_a_fit_that_sees_them() -> None:
    seen = replace(VANILLA, split="seen:20:file")
    data, hidden = trial_graph(seen), trial_graph(VANILLA)
    assert torch.equal(data.test_mask, hidden.unseen_mask)
    # Noise is added before anything is hidden.
    assert torch.equal(data.edge_index, hidden.edge_index)
    assert fitted_graph(data) is data
    model = Vanilla(max_epochs=5, random_state=1, device="cpu").fit(data)
    assert predicted_probabilities(model, data) is model.probability_
    (result,) = execute([seen])
    assert result.test_accuracy == pytest.approx(model.score(data), abs=1e-5)


def test_a_fit_learns_nothing_of_hidden_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[torch.Tensor] = []
    real = Vanilla.fit

    def spy(self, data, **options):
        fitted.append(data.node_id)
        return real(self, data, **options)

    monkeypatch.setattr(Vanilla, "fit", spy)
    (result,) = execute([VANILLA])
    assert result.ok, result.error
    hidden = trial_graph(VANILLA).unseen_mask
    assert torch.equal(fitted[0], (~hidden).nonzero().squeeze(-1))


def test_names_of_splits_are_spelt_out() -> None:
    assert full_split_name("cora", "unseen:20") == "unseen:20:file"
    assert full_split_name("cora", "seen:20") == "seen:20:file"
    assert full_split_name("cora", "unseen:20:random") == "unseen:20:random"
    assert is_halved("unseen:20:halves:file") and not is_halved("unseen:20:file")
    assert full_split_name("cora", "random:20/20/60") == "random:20/20/60"
    assert not same_graph_for_all_seeds(replace(UNSEEN, noise=0))


def test_curves_of_unseen_nodes_are_refused() -> None:
    (result,) = execute([replace(VANILLA, curves=True)])
    assert "nodes that the fit sees" in result.error
