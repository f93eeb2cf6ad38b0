"""How many records a progress bar waits for."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command, refused
from gsebo.methods.watching import expected_steps

# The folders of tests are packages side by side.
from methods.examples import quick, small_graph


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gsebo", {}),
        ("vanilla", {"max_epochs": 10, "evaluate_every": 4}),
        ("amortised", {"label_use": "folds", "num_folds": 3}),
        ("amortised", {"label_use": "cross"}),
        ("amortised", {"label_use": "fixed"}),
    ],
    ids=str,
)
def test_a_bar_ends_where_a_fit_ends(name: str, options: dict[str, Any]) -> None:
    model = quick(name, **options).fit(small_graph())
    assert expected_steps(model.get_params(deep=False)) == len(model.history_)


@pytest.mark.parametrize(
    ("method", "setting"),
    [("amortised", "num_folds=0"), ("vanilla", "evaluate_every=0")],
)
def test_a_bar_does_not_stumble_over_a_bad_parameter(
    command: Command, graph_file: Path, method: str, setting: str
) -> None:
    result = command("fit", graph_file, "--method", method, "--set", setting)
    assert f"{setting} given" in refused(result)


def test_some_fits_do_not_tell_how_long_they_are() -> None:
    assert expected_steps({"backbone": "gcn"}) is None
