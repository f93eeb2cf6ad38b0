"""What is done to features before a network reads them, by any method."""

import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import gsebo
from gsebo import InputWarning, InvalidInput
from gsebo.data.formats.folder import write_folder
from methods.examples import (
    NAMES,
    assert_same_fit,
    quick,
    small_graph,
    to_csr,
    with_fields,
)

UNITS = torch.tensor([1.0, 1e-4, 1e3, 1.0, 1.0, 1.0, 1e5, 1.0])


def of_mixed_units() -> Data:
    graph = small_graph()
    return with_fields(graph, x=graph.x * UNITS + 3 * UNITS)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "auto"])
def test_standard_features_make_units_not_matter(name: str, tmp_path: Path) -> None:
    graph = of_mixed_units()
    x = graph.x.double()
    by_hand = ((x - x.mean(0)) / x.std(0, correction=0)).float()
    model = quick(name, features="standard").fit(graph)
    wanted = quick(name, features="given").fit(with_fields(graph, x=by_hand))
    tolerance = {"atol": 1e-3, "rtol": 1e-3}
    torch.testing.assert_close(model.probability_, wanted.probability_, **tolerance)
    torch.testing.assert_close(model.predict_proba(graph), model.probability_)
    assert torch.equal(model.graph_.x, graph.x)
    model.save(tmp_path / "m")
    again = gsebo.load_model(tmp_path / "m")
    torch.testing.assert_close(again.predict_proba(graph), model.probability_)


def test_other_graphs_are_prepared_as_that_of_the_fit() -> None:
    graph = of_mixed_units()
    model = quick("vanilla", features="standard").fit(graph)
    half = graph.x.clone()
    half[30:] = 0
    other = with_fields(graph, x=half)
    # The rows that stay are the same rows: units come from the fit, not from here.
    mlp = quick("mlp", features="standard").fit(graph)
    found, before = mlp.predict_proba(other), mlp.predict_proba(graph)
    torch.testing.assert_close(found[:30], before[:30])
    assert model.predict_proba(other).shape == before.shape


@pytest.mark.parametrize("name", ["gsebo", "amortised", "vanilla"])
def test_given_features_are_left_alone(name: str) -> None:
    graph = small_graph()
    model = quick(name, features="given").fit(graph)
    assert model.model_.preparation is None
    assert_same_fit(model, quick(name).fit(graph))


def test_a_graph_without_features_can_be_read_by_its_degrees(tmp_path: Path) -> None:
    graph = small_graph()
    del graph["x"]
    with pytest.raises(InvalidInput, match="features='degree'"):
        quick("gsebo").fit(graph)
    for name in ("gsebo", "amortised"):
        model = quick(name, features="degree+identity").fit(graph)
        torch.testing.assert_close(model.predict_proba(graph), model.probability_)
        model.save(tmp_path / name)
        again = gsebo.load_model(tmp_path / name)
        torch.testing.assert_close(again.predict_proba(graph), model.probability_)


def test_batches_and_folders(tmp_path: Path) -> None:
    graph = of_mixed_units()
    method = quick("gsebo", features="standard", batch_size=20)
    found = method.fit(graph).predict_proba(graph)
    torch.testing.assert_close(found, method.probability_)
    folder = write_folder(graph, tmp_path / "g")
    with pytest.raises(InvalidInput, match="features='standard' given for the graph"):
        quick("gsebo", features="standard", batch_size=20).fit(folder)
    whole = quick("gsebo", features="standard").fit(folder)
    torch.testing.assert_close(whole.predict_proba(folder), whole.probability_)


def test_a_name_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="standart"):
        quick("gsebo", features="standart").fit(small_graph())


@pytest.mark.parametrize("name", ["gsebo", "amortised", "vanilla"])
def test_mixed_units_get_one_warning_that_names_what_helps(name: str) -> None:
    graph = of_mixed_units()
    with pytest.warns(InputWarning, match="features='standard'") as caught:
        quick(name).fit(graph, replicas=2)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(name, features="standard").fit(graph)


def test_no_warning_where_there_is_nothing_to_say() -> None:
    graph = small_graph()
    rare = torch.zeros(60, 8)
    rare[0, 0], rare[:20, 1] = 1e-6, 1.0
    constant = graph.x.clone()
    constant[:, 3] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of one unit, mostly zero, sparse, and with a column that says nothing.
        for x in (graph.x * 1e6, rare, to_csr(rare), constant):
            quick("vanilla").fit(with_fields(graph, x=x))
        quick("auto").fit(of_mixed_units())


def test_the_command_line_takes_it_too() -> None:
    from gsebo.cli.fit import parameters_from, read_settings

    settings = read_settings(["features=standard"], [gsebo.GSEBO])
    assert parameters_from(settings, gsebo.GSEBO) == {"features": "standard"}
