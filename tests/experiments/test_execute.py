"""Fits behind results: the same as the estimator's own, and what they record."""

import pytest
import torch

from gsebo import GSEBO, load_data
from gsebo.data import add_inter_class_edges
from gsebo.experiments import Trial, execute
from gsebo.experiments.fit import trial_graph
from gsebo.experiments.result import BINS

SHORT = {
    "max_outer_steps": 3,
    "inner_steps": 3,
    "outer_step": "paper",
    "outer_lr": 0.5,
}


def trial(**changes: object) -> Trial:
    fields: dict = {
        "method": "gsebo",
        "backbone": "gcn",
        "dataset": "cora",
        "split": "file",
        "seed": 1,
        "parameters": SHORT,
    }
    return Trial(**fields | changes)


def same(first: object, second: object) -> bool:
    names = ("test_accuracy", "val_accuracy", "val_loss", "best_step", "edges")
    return all(getattr(first, name) == getattr(second, name) for name in names)


def test_a_result_is_the_estimators_own() -> None:
    (result,) = execute([trial()])
    data = load_data("cora")
    model = GSEBO(**SHORT, random_state=1, device="cpu").fit(data)
    assert result.ok and result.trial == trial()
    assert result.test_accuracy == pytest.approx(model.score(data), abs=1e-5)
    assert result.best_step == model.best_step_
    assert result.outer_iterations == 3
    assert result.seconds > 0 and result.peak_memory_bytes > 1e6
    assert result.device.startswith("cpu") and result.versions["torch"]
    assert result.all_parameters["inner_steps"] == 3
    assert result.all_parameters["dropout"] == 0.5
    assert not {"backbone", "device", "random_state"} & set(result.all_parameters)


@pytest.mark.exact
def test_trials_together_are_trials_alone() -> None:
    trials = [trial(seed=seed) for seed in (1, 2, 3)]
    together = execute(trials)
    assert [result.trial for result in together] == trials
    assert {result.together for result in together} == {3}
    for one, result in zip(trials, together, strict=True):
        assert same(result, *execute([one]))


def test_curves_watch_from_outside() -> None:
    (plain,) = execute([trial()])
    (watched,) = execute([trial(curves=True)])
    assert same(plain, watched) and plain.curves is None
    assert watched.curves is not None
    assert {len(column) for column in watched.curves.values()} == {3}
    assert watched.curves["inner_steps"] == [3, 6, 9]
    kept = watched.curves["test_accuracy"][watched.best_step - 1]
    assert kept == watched.test_accuracy


@pytest.mark.parametrize("per_layer", [False, True])
def test_what_became_of_the_edges(per_layer: bool) -> None:
    noisy = trial(noise=100, parameters={**SHORT, "per_layer": per_layer})
    (result,) = execute([noisy])
    data = add_inter_class_edges(load_data("cora"), 100, seed=1)
    model = GSEBO(**noisy.parameters, random_state=1, device="cpu").fit(data)
    assert result.edges is not None
    assert len(result.edges) == (2 if per_layer else 1)
    same_class = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    for layer, strength in zip(
        result.edges, model.strength_.reshape(-1, data.num_edges), strict=True
    ):
        assert layer["false"]["count"] == 200
        assert layer["within"]["count"] == int(same_class.sum())
        assert sum(group["count"] for group in layer.values()) == data.num_edges
        ratio = strength.double() / model.initial_strength_.double()
        mean = float(ratio[same_class].mean())
        assert layer["within"]["mean"] == pytest.approx(mean, abs=1e-5)
        for group in layer.values():
            assert len(group["histogram"]) == len(BINS)
            assert sum(group["histogram"]) == group["count"]
        low = ratio[same_class] < 0.1
        assert layer["within"]["histogram"][0] == int(low.sum())


def test_methods_without_a_structure_say_nothing_of_edges() -> None:
    vanilla = trial(method="vanilla", parameters={"max_epochs": 3})
    (result,) = execute([vanilla])
    assert result.ok and result.edges is None and result.new_edges == 0


def test_a_failure_is_a_result() -> None:
    (failed,) = execute([trial(parameters={"inner_steps": -1})])
    assert not failed.ok and failed.test_accuracy is None
    assert "inner_steps" in failed.error and "\n" not in failed.error
    (lost,) = execute([trial(dataset="nowhere")])
    assert "nowhere" in lost.error


def test_test_labels_are_not_read_by_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffled(one: Trial, data_dir: object, loaded: object) -> object:
        data = trial_graph(one, data_dir)
        hidden = ~(data.train_mask | data.val_mask)
        data.y = data.y.clone()
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(int(hidden.sum()), generator=generator)
        data.y[hidden] = data.y[hidden][order]
        return data

    (plain,) = execute([trial()])
    monkeypatch.setattr("gsebo.experiments.fit.trial_graph", shuffled)
    (blind,) = execute([trial()])
    assert blind.val_loss == plain.val_loss and blind.best_step == plain.best_step
    assert blind.test_accuracy != plain.test_accuracy
