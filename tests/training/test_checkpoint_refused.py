"""A checkpoint of another fit, or a damaged one, is refused in one sentence."""

from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.bilevel import Reverse
from gsebo.files import read_tensors, write_tensors
from gsebo.structure import EdgeStrength

# The folders of tests are packages side by side.
from methods.examples import supported

from .conftest import Folders
from .interrupted import (
    assert_same_run,
    every_method,
    interrupt,
    left_alone,
    make,
    resuming,
    saving,
)


def other_graphs(data: Data) -> dict[str, Data]:
    changed = {key: data.clone() for key in ("x", "dtype", "edges", "y", "masks")}
    changed["x"].x[0, 0] += 1
    changed["dtype"].x = data.x.double()
    changed["edges"].edge_index = data.edge_index[:, 1:]
    known = data.val_mask.nonzero()[0]
    changed["y"].y[known] = 1 - data.y[known]
    changed["masks"].val_mask[known] = False
    return changed


@every_method
def test_another_graph_is_refused(name: str, data: Data, interrupted: Folders) -> None:
    folder = interrupted(name)
    for other in other_graphs(data).values():
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make(name).fit(other, checkpoint=resuming(folder))


@every_method
@pytest.mark.parametrize(
    "changes",
    [{"random_state": 1}, {"inner_lr": 0.03}, {"backbone": "sage"}, {"dropout": 0.4}],
    ids=str,
)
def test_another_fit_is_refused(
    name: str, changes: dict[str, Any], data: Data, interrupted: Folders
) -> None:
    if not supported(name, changes.get("backbone", make(name).backbone)):
        pytest.skip(f"{name} has other networks")
    if name == "retrain" and not {"random_state", "backbone"} & changes.keys():
        pytest.skip("its first training is another method's, without this parameter")
    folder = interrupted(name)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make(name, **changes).fit(data, checkpoint=resuming(folder))


def test_another_method_is_refused(data: Data, interrupted: Folders) -> None:
    folder = interrupted("gsebo")
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("frozen").fit(data, checkpoint=resuming(folder))


def test_another_engine_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", hypergradient=Reverse(horizon=2)), data, tmp_path)
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        make("gsebo", hypergradient=Reverse(horizon=3)).fit(
            data, checkpoint=resuming(tmp_path)
        )


def test_another_structure_given_as_code_is_refused(data: Data, tmp_path: Path) -> None:
    interrupt(make("gsebo", structure=EdgeStrength()), data, tmp_path)
    for structure in (EdgeStrength(tied=True), EdgeStrength(learn_self_loops=False)):
        with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
            make("gsebo", structure=structure).fit(data, checkpoint=resuming(tmp_path))
    resumed = make("gsebo", structure=EdgeStrength()).fit(
        data, checkpoint=resuming(tmp_path)
    )
    assert_same_run(resumed, left_alone("gsebo"))


@every_method
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(
    name: str, share: float, data: Data, interrupted: Folders
) -> None:
    folder = interrupted(name)
    (path,) = folder.glob("checkpoint*")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidInput, match="damaged") as caught:
        make(name).fit(data, checkpoint=resuming(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["step", "history", "best", "weights:weights"])
def test_an_incomplete_checkpoint_is_refused(
    missing: str, data: Data, interrupted: Folders
) -> None:
    folder = interrupted("gsebo")
    path = saving(folder).path
    tensors, facts = read_tensors(path, "a checkpoint")
    tensors.pop(missing, None)
    facts.pop(missing, None)
    write_tensors(path, tensors, facts)
    with pytest.raises(InvalidInput, match="damaged"):
        make("gsebo").fit(data, checkpoint=resuming(folder))


@every_method
def test_a_place_that_cannot_be_written_is_told_at_once(
    name: str, data: Data, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    steps = []
    with pytest.raises(InvalidInput, match="cannot write"):
        make(name).fit(
            data,
            checkpoint=saving(tmp_path / "file" / "below"),
            watcher=lambda *step: steps.append(step),
        )
    assert steps == []
